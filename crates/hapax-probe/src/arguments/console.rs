//! What a run shows while it runs: a line on standard error, or the commands of a dry run.
//!
//! The line is rewritten for each check, and only if standard error is a terminal. The commands of a dry
//! run are collected, and printed in place of the report.

use std::{
    cell::RefCell,
    io::{self, IsTerminal as _, Write as _},
};

use crate::{Finding, Progress};

/// Erases the line of the terminal, from its beginning.
const ERASE: &str = "\r\x1b[K";

/// The progress of a run, and the commands of a dry run.
#[derive(Debug)]
pub(super) struct Console {
    dry_run: bool,
    /// Whether standard error is a terminal, whose line can be rewritten.
    is_terminal: bool,
    commands: RefCell<String>,
}

impl Console {
    pub(super) fn new(dry_run: bool) -> Self {
        Self {
            dry_run,
            is_terminal: io::stderr().is_terminal(),
            commands: RefCell::default(),
        }
    }

    /// Removes the line from the terminal.
    pub(super) fn clear(&self) {
        self.show("");
    }

    /// Returns the commands of a dry run.
    pub(super) fn into_commands(self) -> String {
        self.commands.into_inner()
    }

    fn show(&self, line: &str) {
        if self.is_terminal && !self.dry_run {
            let mut terminal = io::stderr().lock();
            // A run does not fail because its progress cannot be shown.
            let _ = write!(terminal, "{ERASE}{line}");
            let _ = terminal.flush();
        }
    }
}

impl Progress for Console {
    fn begins(&self, done: usize, all: usize, operation: &str, check: &str) {
        if self.dry_run {
            let mut commands = self.commands.borrow_mut();
            commands.push_str("# ");
            commands.push_str(check);
            commands.push('\n');
            return;
        }
        self.show(&format!("{}/{all} {operation} {check}", done + 1));
    }

    fn finding(&self, _: &Finding) {}

    fn would_send(&self, command: &str) {
        let mut commands = self.commands.borrow_mut();
        commands.push_str(command);
        commands.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_collects_the_commands_of_each_check() {
        let console = Console::new(true);
        console.begins(0, 2, "/orders", "replay.body");
        console.would_send("curl -i http://localhost/orders");
        console.begins(1, 2, "/orders", "replay.status");
        assert_eq!(
            console.into_commands(),
            "# replay.body\ncurl -i http://localhost/orders\n# replay.status\n"
        );
    }
}
