//! The file of the recorded figures: a table that a reviewer can read.

use std::{fmt, fs, path::Path};

use anyhow::{Context as _, bail};

use super::{Cost, RECORD_AGAIN};

const ORIGIN: &str = "# on ";
const COLUMNS: [&str; 3] = ["path", "instructions", "allocations"];

/// The cost of one operation of each path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The architecture and the compiler.
    pub(super) origin: String,
    pub(super) costs: Vec<(String, Cost)>,
}

impl Record {
    /// Reads the file.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(name)?;
        Self::parse(&text).with_context(name)
    }

    /// The recorded cost of a path.
    pub(super) fn cost(&self, path: &str) -> Option<Cost> {
        let found = self.costs.iter().find(|(known, _)| known == path);
        found.map(|(_, cost)| *cost)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let origin = text.lines().find_map(|line| line.strip_prefix(ORIGIN));
        let origin = origin.with_context(|| format!("expected a line `{ORIGIN}`"))?;
        let mut costs = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() || words == COLUMNS {
                continue;
            }
            let [path, instructions, allocations] = words[..] else {
                bail!("expected a path and two figures, got {line:?}");
            };
            let figure = |text: &str| {
                let figure = text.parse::<u64>();
                figure.with_context(|| format!("{path}: expected a number, got {text:?}"))
            };
            let cost = Cost {
                instructions: figure(instructions)?,
                allocations: figure(allocations)?,
            };
            costs.push((path.to_owned(), cost));
        }
        Ok(Self {
            origin: origin.to_owned(),
            costs,
        })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What one operation of each hot path costs. bench/README.md describes the paths.\n\
             # Written by `{RECORD_AGAIN}`\n{ORIGIN}{}\n",
            self.origin
        )?;
        let [path, instructions, allocations] = COLUMNS;
        writeln!(f, "{path:<12} {instructions:>12} {allocations:>12}")?;
        for (path, cost) in &self.costs {
            let (instructions, allocations) = (cost.instructions, cost.allocations);
            writeln!(f, "{path:<12} {instructions:>12} {allocations:>12}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let cost = Cost {
            instructions: 54_321,
            allocations: 26,
        };
        Record {
            origin: "x86_64, rustc 1.95.0 (59807616e 2026-04-14)".to_owned(),
            costs: vec![("replay".to_owned(), cost)],
        }
    }

    #[test]
    fn a_record_reads_back_from_its_text() {
        let text = record().to_string();
        assert_eq!(Record::parse(&text).unwrap(), record());
        let row = "replay              54321           26\n";
        assert!(text.ends_with(row), "{text}");
    }

    #[test]
    fn a_file_that_is_missing_or_is_no_record_is_refused() {
        assert!(Record::read(Path::new("/no/such/record")).is_err());
        let text = record().to_string();
        assert!(Record::parse(&text.replace("# on ", "# ")).is_err());
        assert!(Record::parse(&text.replace(" 26\n", "\n")).is_err());
        assert!(Record::parse(&text.replace(" 26\n", " many\n")).is_err());
    }
}
