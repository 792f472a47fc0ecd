//! Output of commands: tables for people, JSON for programs, CSV for spreadsheets, and exit codes.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

/// Success: the reader of the output has closed it, as in `hapax listen | head`, so that a command
/// that prints line after line has ended.
pub(crate) const CLOSED: u8 = 0;
/// The command failed. Standard error says why.
pub(crate) const FAILED: u8 = 1;
/// The flags or settings are not valid.
pub(crate) const USAGE: u8 = 2;
/// The requested object does not exist.
pub(crate) const NOT_FOUND: u8 = 3;
/// Refused: the operator did not confirm, or there was a conflict with another change.
pub(crate) const REFUSED: u8 = 4;

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// Whether to print tables as CSV.
    pub(crate) csv: bool,
}

/// Why a command that prints line after line cannot go on.
#[derive(Debug)]
pub(crate) enum LineError {
    /// The reader of the output has closed it.
    Closed,
    /// The line could not be written.
    Failed(io::Error),
}

#[expect(
    clippy::unused_self,
    reason = "there is one standard output, and a command is handed it"
)]
impl Output {
    /// Prints a value as JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        written(text.as_bytes())
    }

    /// Prints a value as JSON on one line.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), LineError> {
        let mut text = serde_json::to_string(value).map_err(io::Error::from)?;
        text.push('\n');
        Ok(flushed(text.as_bytes())?)
    }

    /// Prints the names of the columns of rows that follow one by one. Only CSV has them: without the
    /// rows, no column of a table for people has a width.
    pub(crate) fn header(self, names: &[&str]) -> Result<(), LineError> {
        if self.csv {
            let names: Vec<String> = names.iter().map(|name| column(name)).collect();
            flushed(record(names.iter().map(String::as_str)).as_bytes())?;
        }
        Ok(())
    }

    /// Prints a row whose columns are not padded. In CSV it follows its [`Self::header`].
    pub(crate) fn cells(self, cells: &[String]) -> Result<(), LineError> {
        let line = if self.csv {
            record(cells.iter().map(String::as_str))
        } else {
            let cells: Vec<String> = cells.iter().map(|cell| harmless(cell)).collect();
            format!("{}\n", cells.join("  ").trim_end())
        };
        Ok(flushed(line.as_bytes())?)
    }

    /// Clears the terminal, so that the next output replaces the last one.
    pub(crate) fn clear(self) -> io::Result<()> {
        written(b"\x1b[H\x1b[2J")
    }

    /// Prints a line for people. With CSV it goes to standard error, because a program reads only
    /// the table.
    pub(crate) fn line(self, line: impl Display) -> io::Result<()> {
        self.beside(&format!("{line}\n"))
    }

    /// Prints a table. Columns are padded to their widest cell, except for the last one. In CSV the
    /// columns have the names of the table in lower case.
    pub(crate) fn table<const N: usize>(
        self,
        header: [&str; N],
        rows: &[[String; N]],
    ) -> io::Result<()> {
        let text = if self.csv {
            csv(header, rows)
        } else {
            table(header, rows)
        };
        written(text.as_bytes())
    }

    /// Prints a table that is not the result of the command, but explains it. With CSV it goes to
    /// standard error, as lines do.
    pub(crate) fn side_table<const N: usize>(
        self,
        header: [&str; N],
        rows: &[[String; N]],
    ) -> io::Result<()> {
        self.beside(&table(header, rows))
    }

    /// Prints a text unchanged.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        written(text.as_bytes())
    }

    /// Prints bytes unchanged.
    pub(crate) fn bytes(self, bytes: &[u8]) -> io::Result<()> {
        written(bytes)
    }

    fn beside(self, text: &str) -> io::Result<()> {
        if self.csv {
            unless_closed(io::stderr().lock().write_all(text.as_bytes()))
        } else {
            written(text.as_bytes())
        }
    }
}

/// Whether there is a terminal, so that progress and prompts are printed.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal() && io::stdin().is_terminal()
}

/// Whether the output is shown on a terminal.
pub(crate) fn is_shown() -> bool {
    io::stdout().is_terminal()
}

/// Prints a note on the terminal, and nothing if the output is piped.
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
            let cell = harmless(cell);
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

/// A table as CSV (RFC 4180, with line feeds).
fn csv<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let names = header.map(column);
    let lines = std::iter::once(&names).chain(rows);
    lines
        .map(|cells| record(cells.iter().map(String::as_str)))
        .collect()
}

/// The name of a column in CSV.
fn column(name: &str) -> String {
    name.to_ascii_lowercase().replace(' ', "_")
}

/// A line of CSV.
fn record<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(quoted).collect();
    format!("{}\n", cells.join(","))
}

/// A cell of CSV on one line. Keys and ids are chosen by callers, and a spreadsheet would execute a
/// cell that begins like a formula, so an apostrophe is put before it.
fn quoted(cell: &str) -> String {
    let mut cell = harmless(cell);
    if cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err() {
        cell.insert(0, '\'');
    }
    if cell.contains([',', '"']) {
        cell = format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell
}

/// Text from a row without control characters for the terminal.
fn harmless(cell: &str) -> String {
    let harmless = |it: char| if it.is_control() { ' ' } else { it };
    cell.chars().map(harmless).collect()
}

fn written(bytes: &[u8]) -> io::Result<()> {
    unless_closed(flushed(bytes))
}

/// Ignores the error of a pipe that its reader has closed, as in `hapax events list | head`.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn flushed(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

impl From<io::Error> for LineError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
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

    #[test]
    fn csv_is_one_line_for_each_row_whatever_the_cells_contain() {
        let rows = [
            ["a,b".to_owned(), "say \"x\"\nthen y".to_owned()],
            ["=HYPERLINK(1)".to_owned(), "-5".to_owned()],
        ];
        let expected = "order_id,state\n\"a,b\",\"say \"\"x\"\" then y\"\n'=HYPERLINK(1),-5\n";
        assert_eq!(csv(["ORDER ID", "STATE"], &rows), expected);
    }
}
