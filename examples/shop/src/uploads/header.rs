//! Reads the format and size of an image from its header.
//!
//! The file name and the declared type are ignored, and nothing is decoded. An image that would be
//! too large when decoded is refused by its header. Whether the rest of the file matches the header
//! is not checked here.

use std::io::{self, Read, Seek};

/// The most pixels of an image; photos of phones usually have fewer.
const PIXELS_MAX: u64 = 40_000_000;
/// The largest decoded image, in bytes: forty megapixels of eight bits in four channels.
pub(super) const UNPACKED_BYTES_MAX: u64 = 4 * PIXELS_MAX;
/// The most segments of a JPEG before the one with its size.
const SEGMENTS_MAX: usize = 4096;

const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
const JPEG: [u8; 3] = [0xff, 0xd8, 0xff];

/// The accepted formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Png,
    Jpeg,
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) format: Format,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// The reason why a file is not an accepted image.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The file is neither a PNG nor a JPEG.
    Foreign,
    /// The file starts like a PNG or JPEG, but its header is not valid.
    Broken(&'static str),
    /// The image would be too large when decoded.
    Large { width: u32, height: u32 },
    /// The file could not be read.
    Unread(io::Error),
}

impl Format {
    /// Returns the media type of the format.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    /// Returns the format with this media type.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        [Self::Png, Self::Jpeg]
            .into_iter()
            .find(|format| format.content_type() == content_type)
    }
}

/// Reads the header of a file from its beginning.
pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Header, Unfit> {
    let mut first = [0; 3];
    read_exact(file, &mut first).map_err(|unfit| match unfit {
        Unfit::Unread(error) => Unfit::Unread(error),
        _ => Unfit::Foreign,
    })?;
    let (header, pixel_bytes) = if first == JPEG {
        (jpeg(file)?, 4)
    } else if first == PNG[..3] {
        png(file)?
    } else {
        return Err(Unfit::Foreign);
    };
    let Header { width, height, .. } = header;
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(Unfit::Broken("the image has no pixels"));
    }
    if pixels > PIXELS_MAX || pixels * pixel_bytes > UNPACKED_BYTES_MAX {
        return Err(Unfit::Large { width, height });
    }
    Ok(header)
}

/// Reads the rest of a PNG header; returns it with the most bytes that a decoded pixel takes.
fn png(file: &mut impl Read) -> Result<(Header, u64), Unfit> {
    const BAD: Unfit = Unfit::Broken("the first PNG chunk is not a valid IHDR");
    let mut head = [0; 5 + 8 + 13];
    read_exact(file, &mut head)?;
    if head[..5] != PNG[3..] || head[5..13] != *b"\0\0\0\x0dIHDR" {
        return Err(BAD);
    }
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (depth, colour) = (head[21], head[22]);
    let channels = match (colour, depth) {
        (0, 1 | 2 | 4 | 8 | 16) | (4, 8 | 16) => 2,
        (3, 1 | 2 | 4 | 8) | (2 | 6, 8 | 16) => 4,
        _ => return Err(BAD),
    };
    // PNG defines one compression method, one filter method, and two interlace methods.
    if head[23] != 0 || head[24] != 0 || head[25] > 1 {
        return Err(BAD);
    }
    let header = Header {
        format: Format::Png,
        width: number(13),
        height: number(17),
    };
    Ok((header, channels * u64::from(depth.div_ceil(8))))
}

/// Reads the segments of a JPEG up to the one with its size.
fn jpeg(file: &mut (impl Read + Seek)) -> Result<Header, Unfit> {
    // The 0xff of the first marker has already been read.
    let mut marker = [0xff];
    for _ in 0..SEGMENTS_MAX {
        while marker == [0xff] {
            read_exact(file, &mut marker)?;
        }
        match marker[0] {
            // Baseline, extended and progressive are supported.
            0xc0..=0xc2 => return frame(file),
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Err(Unfit::Broken("this kind of JPEG is not supported"));
            }
            // A scan, or the end, before any frame.
            0x00 | 0xd8..=0xda => return Err(Unfit::Broken("the JPEG has no frame")),
            // These markers have no segment.
            0x01 | 0xd0..=0xd7 => {}
            _ => skip(file)?,
        }
        read_exact(file, &mut marker)?;
        if marker != [0xff] {
            return Err(Unfit::Broken("its segments are none of JPEG"));
        }
    }
    Err(Unfit::Broken("too many JPEG segments before the frame"))
}

fn frame(file: &mut impl Read) -> Result<Header, Unfit> {
    let mut frame = [0; 7];
    read_exact(file, &mut frame)?;
    if frame[2] != 8 {
        return Err(Unfit::Broken("the samples do not have eight bits"));
    }
    let number = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    Ok(Header {
        format: Format::Jpeg,
        height: number(3),
        width: number(5),
    })
}

fn skip(file: &mut (impl Read + Seek)) -> Result<(), Unfit> {
    let mut length = [0; 2];
    read_exact(file, &mut length)?;
    let rest = i64::from(u16::from_be_bytes(length)) - 2;
    if rest < 0 {
        return Err(Unfit::Broken("its segments are none of JPEG"));
    }
    file.seek_relative(rest).map_err(Unfit::Unread)
}

fn read_exact(file: &mut impl Read, into: &mut [u8]) -> Result<(), Unfit> {
    file.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Unfit::Broken("the file ends in its header"),
        _ => Unfit::Unread(error),
    })
}

#[cfg(test)]
mod tests;
