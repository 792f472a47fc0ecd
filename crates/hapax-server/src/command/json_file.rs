//! Files with a filter or a mapping.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use hapax::limits::{FILTER_BYTES_MAX, MAPPING_BYTES_MAX};

use super::Failure;
use crate::output::USAGE;

/// The name that stands for standard input.
pub(super) const STDIN: &str = "-";
/// Maximum size of a filter and of a mapping in bytes.
const BYTES_MAX: usize = if FILTER_BYTES_MAX > MAPPING_BYTES_MAX {
    FILTER_BYTES_MAX
} else {
    MAPPING_BYTES_MAX
};

/// The text of a file. One that is too long is refused before it is read completely.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new(STDIN) {
        text(io::stdin())
    } else {
        File::open(path).and_then(text)
    };
    text.map_err(|error| Failure::new(USAGE, format!("{}: {error}", path.display())))
}

fn text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > BYTES_MAX {
        let problem = format!("the file is larger than the maximum of {BYTES_MAX} bytes");
        return Err(io::Error::other(problem));
    }
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_refused_without_a_wrong_size() {
        let read = |bytes: usize| text(&vec![b' '; bytes][..]);
        assert_eq!(read(BYTES_MAX).unwrap().len(), BYTES_MAX);
        for bytes in [BYTES_MAX + 1, 3 << 20] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains("maximum of 16384 bytes"), "{error}");
        }
    }
}
