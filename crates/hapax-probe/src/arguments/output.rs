//! Where a report goes: a file, or standard output.
//!
//! A file is opened before the run, so that a run of some minutes is not lost because its report cannot
//! be written. What the file contains is replaced only when there is a new report.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// A place for a report.
#[derive(Debug)]
pub(super) struct Output(Option<(PathBuf, File)>);

impl Output {
    /// Opens a file, or standard output if there is no path.
    pub(super) fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| cannot_be_written(path))?;
        Ok(Self(Some((path.to_owned(), file))))
    }

    /// Writes a text. It is not an error if the reader of standard output has closed it.
    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        let Some((path, file)) = self.0 else {
            let mut out = io::stdout().lock();
            return match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(error).context("standard output cannot be written")
                }
                _ => Ok(()),
            };
        };
        replaced(&file, text).with_context(|| cannot_be_written(&path))
    }
}

fn cannot_be_written(path: &Path) -> String {
    format!("{} cannot be written", path.display())
}

fn replaced(mut file: &File, text: &str) -> io::Result<()> {
    // A pipe has no content to remove.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_first_and_replaced_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.txt");
        std::fs::write(&path, "the report of the last run").expect("the file can be written");
        let output = Output::new(Some(path.as_path())).expect("the file can be opened");
        let before = std::fs::read_to_string(&path).expect("the file can be read");
        assert_eq!(before, "the report of the last run");
        output.write("a report").expect("the file can be written");
        let after = std::fs::read_to_string(&path).expect("the file can be read");
        assert_eq!(after, "a report");
        let missing = folder.path().join("missing/report.txt");
        assert!(Output::new(Some(missing.as_path())).is_err());
    }
}
