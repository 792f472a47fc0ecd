//! Files of JSON Lines: the format of every ledger and of the history.
//!
//! A line is written by one call, so a process that is killed leaves complete lines, and at most
//! one incomplete line at the end, which readers ignore.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use serde_json::Value;

/// A file of JSON Lines that is open for appending.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<File>);

impl Lines {
    /// Opens the file at `path`, and cuts off an incomplete last line.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let complete = complete(path)?.len();
        let file = File::options().create(true).append(true).open(path)?;
        file.set_len(complete as u64)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: &Value) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Number of bytes in the file.
    pub(crate) fn length(&self) -> io::Result<u64> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.metadata()?.len())
    }

    /// Adds a line, and returns when it is on disk.
    pub(crate) fn keep(&self, line: &Value) -> io::Result<()> {
        self.add(line)?;
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync_data()
    }
}

/// Every complete line of the file at `path`; empty if the file does not exist.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = String::from_utf8(complete(path)?)?;
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

/// The path of a segment of the file at `path`; the first has that name itself.
pub(crate) fn segment(path: &Path, number: usize) -> PathBuf {
    match number {
        0 => path.to_owned(),
        number => path.with_extension(format!("{number}.jsonl")),
    }
}

/// The existing segments of the file at `path`, in order.
pub(crate) fn segments(path: &Path) -> Vec<PathBuf> {
    let all = (0..).map(|number| segment(path, number));
    all.take_while(|it| it.exists()).collect()
}

/// Every complete line of each segment of the file at `path`.
pub(crate) fn read_all(path: &Path) -> anyhow::Result<Vec<Value>> {
    let mut lines = Vec::new();
    for segment in segments(path) {
        lines.extend(read(&segment)?);
    }
    Ok(lines)
}

/// Whether the file at `path` contains this text after the given offset.
pub(crate) fn contains(path: &Path, from: u64, text: &str) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    Ok(String::from_utf8_lossy(&rest).contains(text))
}

/// Nanoseconds since the Unix epoch, the format of every timestamp of a run.
#[expect(
    clippy::disallowed_methods,
    reason = "torture measures with the clock of the machine"
)]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
}

/// A timestamp in the format of RFC 3339, to the millisecond.
pub(crate) fn rfc3339(nanos: u64) -> anyhow::Result<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(nanos / 1_000_000)?)?;
    Ok(at.to_string())
}

/// The complete lines of a file.
fn complete(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.truncate(end.map_or(0, |at| at + 1));
    Ok(bytes)
}
