//! The table of what was explored, as a page can hold it.

use std::fmt::{Debug, Write as _};

use crate::explore::{Design, Verdict, explore};

/// A table that grows row by row.
#[derive(Debug)]
pub(crate) struct Table {
    wanted: String,
    large: bool,
    traces: bool,
    is_as_said: bool,
}

impl Table {
    pub(crate) fn new(wanted: String, large: bool, traces: bool) -> Self {
        say(
            "| model | bug | states | unique | depth | verdict | property broken | steps | seconds |",
        );
        say("|---|---|---:|---:|---:|---|---|---:|---:|");
        Self {
            wanted,
            large,
            traces,
            is_as_said: true,
        }
    }

    /// Explores a design and adds a row for each of its bugs.
    pub(crate) fn add<D: Design>(&mut self) {
        if !D::NAME.starts_with(&self.wanted) {
            return;
        }
        for (bug, breaks) in D::BUGS {
            let verdict = explore::<D>(*bug, *breaks, self.large);
            let broken = verdict.broken.as_ref().map(|broken| broken.property);
            self.is_as_said &= broken == *breaks && (breaks.is_some() || verdict.unseen.is_empty());
            say(&row(D::NAME, &D::name(*bug), &verdict));
            for unseen in verdict.unseen.iter().filter(|_| breaks.is_none()) {
                say(&format!("never seen: {unseen}"));
            }
            let steps = verdict.broken.iter().flat_map(|broken| &broken.steps);
            for (step, number) in steps.zip(1..).filter(|_| self.traces) {
                say(&format!("    {number}. {step}"));
            }
        }
    }

    /// Whether every bug broke what it is said to break, and nothing else did.
    pub(crate) fn is_as_said(&self) -> bool {
        self.is_as_said
    }
}

fn row(model: &str, bug: &str, verdict: &Verdict) -> String {
    let mut row = format!(
        "| {model} | {bug} | {} | {} | {} |",
        verdict.states, verdict.unique, verdict.depth
    );
    let written = match &verdict.broken {
        None => write!(row, " holds | | |"),
        Some(broken) => write!(
            row,
            " broken | {} | {} |",
            broken.property,
            broken.steps.len()
        ),
    };
    written
        .and_then(|()| write!(row, " {:.1} |", verdict.took.as_secs_f64()))
        .expect("a string takes all that is written");
    row
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn say(line: &str) {
    println!("{line}");
}
