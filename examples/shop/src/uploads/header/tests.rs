//! Tests with valid headers, and with headers that are broken or too large.

use std::io::Cursor;

use super::*;

#[test]
fn a_header_says_what_a_picture_claims_to_be() {
    check(&png_of(3, 4, 8, 2), Ok((Format::Png, 3, 4)));
    check(
        &png_of(1, 40_000_000, 8, 6),
        Ok((Format::Png, 1, 40_000_000)),
    );
    check(&jpeg_of(&[], 0xc0, 3, 4), Ok((Format::Jpeg, 3, 4)));
    check(
        &jpeg_of(&[], 0xc2, 65_000, 600),
        Ok((Format::Jpeg, 65_000, 600)),
    );
}

#[test]
fn a_frame_is_found_behind_whatever_stands_before_it() {
    let before = b"\xff\xe0\0\x04ab\xff\xff\xff\xe1\0\x02\xff\x01\xff\xfe\0\x06\xff\xc0\xff\xd9";
    check(&jpeg_of(before, 0xc1, 7, 8), Ok((Format::Jpeg, 7, 8)));
}

#[test]
fn what_is_no_picture_is_foreign_whatever_it_is_called() {
    for other in [
        &b""[..],
        b"GI",
        b"GIF89a",
        b"%PDF-1.7",
        b"<svg xmlns",
        b"PNG\r\n\x1a\n",
        b"\xff\xd9\xff",
        b"RIFF\0\0\0\0WEBP",
    ] {
        check(other, Err("foreign"));
    }
}

#[test]
fn a_header_that_breaks_off_or_makes_no_sense_is_broken() {
    let good = [png_of(3, 4, 8, 2), jpeg_of(b"\xff\xe0\0\x04ab", 0xc0, 3, 4)];
    for good in &good {
        for end in 3..good.len() {
            check(&good[..end], Err("broken"));
        }
    }
    check(b"\x89PNG\r\n\x1a\r\0\0\0\x0dIHDR", Err("broken"));
    for (depth, colour) in [(3, 0), (16, 3), (4, 2), (8, 1), (8, 5), (8, 7), (0, 0)] {
        check(&png_of(3, 4, depth, colour), Err("broken"));
    }
    for (at, bad) in [(26, 1), (27, 1), (28, 2), (11, 1), (15, b'h')] {
        let mut png = png_of(3, 4, 8, 2);
        png[at] = bad;
        check(&png, Err("broken"));
    }
    for bad in [
        &b"\xff\xd8\xff\xd9"[..],
        b"\xff\xd8\xff\xda\0\x08",
        b"\xff\xd8\xff\xe0\0\x01",
        b"\xff\xd8\xff\xe0\0\x02x",
        b"\xff\xd8\xff\x00",
    ] {
        check(bad, Err("broken"));
    }
    check(&jpeg_of(&[], 0xc3, 3, 4), Err("broken"));
    check(&jpeg_of(&[], 0xc9, 3, 4), Err("broken"));
    check(
        &jpeg_of(&b"\xff\x01".repeat(5000), 0xc0, 3, 4),
        Err("broken"),
    );
}

#[test]
fn a_picture_without_pixels_is_none() {
    for (width, height) in [(0, 4), (3, 0), (0, 0)] {
        check(&png_of(width, height, 8, 2), Err("broken"));
    }
    check(&jpeg_of(&[], 0xc0, 0, 4), Err("broken"));
    check(&jpeg_of(&[], 0xc0, 4, 0), Err("broken"));
}

#[test]
fn a_picture_that_would_be_too_large_unpacked_is_refused_by_its_header() {
    check(&png_of(u32::MAX, u32::MAX, 1, 0), Err("large"));
    check(&png_of(40_000_001, 1, 8, 2), Err("large"));
    check(&png_of(20_000_001, 1, 16, 6), Err("large"));
    check(
        &png_of(20_000_000, 1, 16, 6),
        Ok((Format::Png, 20_000_000, 1)),
    );
    check(&jpeg_of(&[], 0xc0, 65_535, 65_535), Err("large"));
}

fn png_of(width: u32, height: u32, depth: u8, colour: u8) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend([depth, colour, 0, 0, 0]);
    png
}

fn jpeg_of(before: &[u8], frame: u8, width: u16, height: u16) -> Vec<u8> {
    let mut jpeg = b"\xff\xd8".to_vec();
    jpeg.extend(before);
    jpeg.extend([0xff, frame, 0, 17, 8]);
    jpeg.extend(height.to_be_bytes());
    jpeg.extend(width.to_be_bytes());
    jpeg
}

#[track_caller]
fn check(file: &[u8], expected: Result<(Format, u32, u32), &str>) {
    let read = match read(&mut Cursor::new(file)) {
        Ok(it) => Ok((it.format, it.width, it.height)),
        Err(Unfit::Foreign) => Err("foreign"),
        Err(Unfit::Broken(_)) => Err("broken"),
        Err(Unfit::Large { .. }) => Err("large"),
        Err(Unfit::Unread(_)) => Err("unread"),
    };
    assert_eq!(read, expected, "{file:x?}");
}
