//! Makes thumbnails: decodes an image within limits, scales it down, and encodes the result.
//!
//! The file is untrusted. The decoder's memory is limited, the size in the header is checked again,
//! and a panic of the decoder counts as an error of the file. An image that cannot be decoded now
//! never can be, so its upload has failed permanently.

use std::{
    fs, io,
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use hapax::key::hex;
use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits,
    codecs::jpeg::JpegEncoder, metadata::Orientation,
};
use sha2::{Digest as _, Sha256};

use super::{
    UPLOAD_BYTES_MAX,
    header::{Format, UNPACKED_BYTES_MAX},
};

/// The longer side of each thumbnail, in pixels.
pub(crate) const SIZES: [u32; 2] = [128, 512];
/// The quality of JPEG thumbnails, of 100.
const QUALITY: u8 = 85;

/// One thumbnail.
#[derive(Debug)]
pub(super) struct Thumbnail {
    pub(super) size: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) sha256: String,
    pub(super) content: Vec<u8>,
}

/// The reason why no thumbnails were made.
#[derive(Debug)]
pub(super) enum NoThumbnails {
    /// The file cannot be read; a retry may succeed.
    Unread(io::Error),
    /// The file is not a valid image; with the reason, for the client.
    Failed(String),
}

/// Makes the thumbnails of a file. This blocks for a while, so call it on a blocking thread.
pub(super) fn make(file: &Path, format: Format) -> Result<Vec<Thumbnail>, NoThumbnails> {
    let length = fs::metadata(file).map_err(NoThumbnails::Unread)?.len();
    if length > UPLOAD_BYTES_MAX {
        return Err(NoThumbnails::Failed("the file is too large".to_owned()));
    }
    let file = fs::read(file).map_err(NoThumbnails::Unread)?;
    guarded(|| scaled(&file, format).map_err(|error| told(&error)))
}

/// Runs the decoder; a panic counts as a failure to decode the file.
fn guarded<R>(decode: impl FnOnce() -> Result<R, String>) -> Result<R, NoThumbnails> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("the decoder panicked".to_owned()))
        .map_err(NoThumbnails::Failed)
}

fn scaled(file: &[u8], format: Format) -> Result<Vec<Thumbnail>, ImageError> {
    let (mut picture, mut orientation) = decoded(file, format)?;
    let mut made = Vec::with_capacity(SIZES.len());
    // The larger thumbnail comes first, because the smaller one is made from it.
    for size in SIZES.into_iter().rev() {
        let (width, height) = fitted(picture.width(), picture.height(), size);
        if (width, height) != (picture.width(), picture.height()) {
            picture = picture.thumbnail_exact(width, height);
        }
        picture.apply_orientation(orientation);
        orientation = Orientation::NoTransforms;
        let content = encoded(&picture, format)?;
        made.push(Thumbnail {
            size,
            width: picture.width(),
            height: picture.height(),
            sha256: hex(&Sha256::digest(&content)),
            content,
        });
    }
    made.reverse();
    Ok(made)
}

/// Decodes an image, unless it takes more memory than the limit for its header allows.
fn decoded(file: &[u8], format: Format) -> Result<(DynamicImage, Orientation), ImageError> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(UNPACKED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(file), of(format));
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    limits.reserve(decoder.total_bytes())?;
    // If the orientation is not valid, the image is used as it is.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((DynamicImage::from_decoder(decoder)?, orientation))
}

fn encoded(picture: &DynamicImage, format: Format) -> Result<Vec<u8>, ImageError> {
    let mut content = Vec::new();
    match format {
        Format::Jpeg => {
            let encoder = JpegEncoder::new_with_quality(&mut content, QUALITY);
            picture.to_rgb8().write_with_encoder(encoder)?;
        }
        Format::Png if picture.color().has_alpha() => {
            let picture = picture.to_rgba8();
            picture.write_to(&mut Cursor::new(&mut content), ImageFormat::Png)?;
        }
        Format::Png => {
            let picture = picture.to_rgb8();
            picture.write_to(&mut Cursor::new(&mut content), ImageFormat::Png)?;
        }
    }
    Ok(content)
}

/// Returns the width and height that fit into a square of `size`; an image is never enlarged.
fn fitted(width: u32, height: u32, size: u32) -> (u32, u32) {
    let longer = width.max(height);
    if longer <= size {
        return (width, height);
    }
    let scale = |side: u32| {
        let scaled =
            (u64::from(side) * u64::from(size) + u64::from(longer) / 2) / u64::from(longer);
        u32::try_from(scaled).unwrap_or(size).max(1)
    };
    (scale(width), scale(height))
}

fn of(format: Format) -> ImageFormat {
    match format {
        Format::Png => ImageFormat::Png,
        Format::Jpeg => ImageFormat::Jpeg,
    }
}

/// Returns why an image cannot be decoded, for the client.
fn told(error: &ImageError) -> String {
    match error {
        ImageError::Limits(_) => "the decoded image takes too much memory".to_owned(),
        ImageError::Unsupported(_) => "this kind of image is not supported".to_owned(),
        _ => "the image cannot be decoded".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbnail_fits_its_square_and_is_never_enlarged() {
        for ((width, height), expected) in [
            ((1024, 512), (512, 256)),
            ((512, 1024), (256, 512)),
            ((512, 512), (512, 512)),
            ((513, 513), (512, 512)),
            ((3, 4), (3, 4)),
            ((40_000_000, 1), (512, 1)),
            ((1, 40_000_000), (1, 512)),
            ((1000, 3), (512, 2)),
        ] {
            assert_eq!(fitted(width, height, 512), expected, "{width}x{height}");
        }
    }

    #[test]
    fn a_decoder_that_panics_has_said_what_it_thinks_of_the_file() {
        let failed = guarded::<()>(|| panic!("index out of bounds"));
        assert!(matches!(failed, Err(NoThumbnails::Failed(_))), "{failed:?}");
    }

    #[test]
    fn a_picture_stands_upright_as_its_camera_noted() {
        let mut jpeg = jpeg_of(300, 200);
        // EXIF with one entry: orientation 6, which means a rotation to the right.
        let exif = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        jpeg.splice(2..2, exif.iter().copied());
        let made = scaled(&jpeg, Format::Jpeg).unwrap();
        let sides: Vec<_> = made
            .iter()
            .map(|it| (it.size, it.width, it.height))
            .collect();
        assert_eq!(sides, [(128, 85, 128), (512, 200, 300)]);
    }

    #[test]
    fn a_file_that_is_gone_is_no_verdict_on_the_picture() {
        let gone = make(Path::new("/nowhere/at/all"), Format::Png);
        assert!(matches!(gone, Err(NoThumbnails::Unread(_))), "{gone:?}");
    }

    #[test]
    fn what_would_take_more_memory_than_its_header_was_let_through_with_is_refused() {
        // Forty megapixels are allowed; this image has more, and bypasses the header check.
        let mut png = Vec::new();
        let large = image::GrayImage::new(20_000, 10_000);
        let file = &mut Cursor::new(&mut png);
        large.write_to(file, ImageFormat::Png).unwrap();
        assert!(png.len() < 1_000_000, "the file is a decompression bomb");
        let failed = scaled(&png, Format::Png);
        assert!(matches!(failed, Err(ImageError::Limits(_))), "{failed:?}");
    }

    fn jpeg_of(width: u32, height: u32) -> Vec<u8> {
        let picture = DynamicImage::new_rgb8(width, height);
        encoded(&picture, Format::Jpeg).unwrap()
    }
}
