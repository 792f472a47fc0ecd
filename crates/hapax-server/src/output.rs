//! How a command speaks: a table for people, JSON for programs; and what its exit code says.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

/// It could not be done; the line on standard error says why.
pub(crate) const FAILED: u8 = 1;
/// It was asked for in a way that cannot be understood: flags or settings.
pub(crate) const USAGE: u8 = 2;
/// What it was asked about is not there.
pub(crate) const NOT_FOUND: u8 = 3;
/// It was not done, because the operator did not agree or somebody else was first.
pub(crate) const REFUSED: u8 = 4;

/// Where a command writes what it found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether programs read it.
    pub(crate) json: bool,
}

#[expect(
    clippy::unused_self,
    reason = "there is one standard output, and a command is handed it"
)]
impl Output {
    /// Writes a value as JSON, on lines of its own.
    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        written(text.as_bytes())
    }

    /// Writes a line.
    pub(crate) fn line(self, line: impl Display) -> io::Result<()> {
        written(format!("{line}\n").as_bytes())
    }

    /// Writes a table: columns as wide as they must be, the last one as it is.
    pub(crate) fn table<const N: usize>(
        self,
        header: [&str; N],
        rows: &[[String; N]],
    ) -> io::Result<()> {
        written(table(header, rows).as_bytes())
    }

    /// Writes a text as it is.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        written(text.as_bytes())
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> io::Result<()> {
        written(bytes)
    }
}

/// Whether a person watches: progress and questions are for them alone.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal() && io::stdin().is_terminal()
}

/// Writes a note to the person who watches, and nothing into a pipe.
pub(crate) fn note(line: impl Display) {
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(header[column].chars().count())
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    let mut push = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.into_iter().zip(widths) {
            // What comes from a row must not steer the terminal.
            let cell: String = cell
                .chars()
                .map(|it| if it.is_control() { ' ' } else { it })
                .collect();
            let padded = format!("{cell:width$}  ");
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    push(header);
    for row in rows {
        push(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

fn written(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Whoever reads has seen enough: `hapax events list | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_lines_end_where_they_end() {
        let rows = [
            ["a".to_owned(), "one".to_owned()],
            ["long name".to_owned(), "\u{1b}[2J".to_owned()],
        ];
        let expected = "NAME       STATE\na          one\nlong name   [2J\n";
        assert_eq!(table(["NAME", "STATE"], &rows), expected);
    }
}
