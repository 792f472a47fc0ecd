//! Pictures for uploads, valid and invalid.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

/// A PNG of this size with many colours.
pub(super) fn png(width: u32, height: u32) -> Vec<u8> {
    encoded(width, height, ImageFormat::Png)
}

/// A JPEG of this size.
pub(super) fn jpeg(width: u32, height: u32) -> Vec<u8> {
    encoded(width, height, ImageFormat::Jpeg)
}

/// A black PNG of this size: a small file that needs much memory when it is decoded.
pub(super) fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    DynamicImage::new_luma8(width, height)
        .write_to(&mut file, ImageFormat::Png)
        .unwrap();
    file.into_inner()
}

/// A valid PNG of this many bytes. It contains a chunk that decoders ignore.
pub(super) fn heavy(bytes: usize) -> Vec<u8> {
    let mut file = png(64, 64);
    let end = file.len() - 12;
    let rest = file.split_off(end);
    let padding = vec![b'x'; bytes - file.len() - rest.len() - 12];
    chunk(&mut file, *b"shOp", &padding);
    file.extend(rest);
    file
}

/// A PNG whose header claims another size, with a correct checksum.
pub(super) fn claiming(width: u32, height: u32) -> Vec<u8> {
    let whole = png(16, 16);
    let mut header = width.to_be_bytes().to_vec();
    header.extend(height.to_be_bytes());
    header.extend(&whole[24..29]);
    let mut file = whole[..8].to_vec();
    chunk(&mut file, *b"IHDR", &header);
    file.extend(&whole[33..]);
    file
}

/// The size of a picture in this format.
pub(super) fn sides(file: &[u8], content_type: &str) -> (u32, u32) {
    let format = ImageFormat::from_mime_type(content_type).unwrap();
    let picture = image::load_from_memory_with_format(file, format).unwrap();
    (picture.width(), picture.height())
}

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let colour = |x: u32, y: u32| Rgb([x, y, x ^ y].map(|it| u8::try_from(it % 256).unwrap()));
    let picture = RgbImage::from_fn(width, height, colour);
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// Appends a PNG chunk.
fn chunk(file: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) {
    let length = u32::try_from(content.len()).unwrap();
    file.extend(length.to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(content);
    let sum = checksum(&file[start..]);
    file.extend(sum.to_be_bytes());
}

/// The CRC-32 of PNG.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum: u32, _| {
            (sum >> 1) ^ (0xedb8_8320 * (sum & 1))
        })
    })
}
