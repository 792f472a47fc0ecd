//! Minimization: repeats a violated run with fewer and fewer of its faults.
//!
//! The faults of a seed have the same numbers in every run, but not the same timing: a subset that
//! holds once may be violated the next time, so each subset is tried more than once.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{
    artifacts::Artifacts,
    lines,
    nemesis::Injections,
    report::{Verdict, broken, print},
    separate_run::SeparateRun,
};

/// How often a subset is tried.
const TRIES: usize = 2;

/// Arguments of a minimization.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// The folder of a run that was violated
    folder: PathBuf,
    /// Minutes after which the smallest list of injections so far is printed
    #[arg(long, default_value_t = 30)]
    minutes: u64,
}

/// Finds the smallest subset of the faults that still violates an invariant of the run.
pub(crate) fn minimize(flags: &Flags) -> anyhow::Result<Verdict> {
    let artifacts = Artifacts::read(&flags.folder)?;
    let wanted = broken(&artifacts);
    if wanted.is_empty() {
        bail!(
            "{} holds: there is nothing to minimize",
            flags.folder.display()
        );
    }
    let faults = lines::read(&flags.folder.join("faults.jsonl"))?;
    let numbers: Vec<_> = faults
        .iter()
        .filter_map(|it| it["number"].as_u64())
        .collect();
    let summary = &artifacts.run;
    let run = SeparateRun {
        store: artifacts.store,
        seconds: Some(summary["seconds"].as_u64().context("a run has a length")?),
        seed: summary["seed"].as_u64().context("a run has a seed")?,
        bug: summary["bug"].as_str(),
        injections: None,
    };
    let until = Instant::now() + Duration::from_secs(flags.minutes * 60);
    let mut number = 0;
    let smallest = smallest(numbers, |part| {
        if Instant::now() > until {
            return Ok(false);
        }
        let injections = Injections(part.iter().copied().collect());
        for _ in 0..TRIES {
            number += 1;
            let folder = Path::new("target/torture").join(format!("minimize-{number}"));
            let run = SeparateRun {
                injections: Some(&injections),
                ..run.clone()
            };
            let found = run.run(&folder)?;
            let is_it = found.iter().any(|it| wanted.contains(it));
            print(&format!(
                "{} injections: {found:?} ({injections})",
                part.len()
            ));
            if is_it {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    print_faults(&faults, &smallest);
    let command = summary["command"].as_str().unwrap_or_default();
    let injections = Injections(smallest.into_iter().collect());
    print(&format!("\n    {command} --injections {injections}"));
    Ok(Verdict::Violated)
}

/// Prints the faults that are needed for the violation.
fn print_faults(faults: &[Value], kept: &[u64]) {
    let is_kept = |it: &&Value| it["number"].as_u64().is_some_and(|it| kept.contains(&it));
    for fault in faults.iter().filter(is_kept) {
        print(&format!(
            "{}: {}",
            fault["number"],
            fault["injection"].as_str().unwrap_or_default()
        ));
    }
}

/// Reduces a list by leaving out halves, quarters, and so on (ddmin).
fn smallest(
    all: Vec<u64>,
    mut is_violated: impl FnMut(&[u64]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<u64>> {
    let (mut left, mut pieces) = (all, 2);
    while left.len() > 1 {
        let size = left.len().div_ceil(pieces);
        let mut smaller = None;
        for piece in left.chunks(size) {
            let piece: BTreeSet<_> = piece.iter().collect();
            let rest = left.iter().filter(|it| !piece.contains(it));
            let rest: Vec<_> = rest.copied().collect();
            if is_violated(&rest)? {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => (left, pieces) = (rest, (pieces - 1).max(2)),
            None if size == 1 => break,
            None => pieces = (pieces * 2).min(left.len()),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_it_takes() {
        let both = |part: &[u64]| Ok(part.contains(&17) && part.contains(&63));
        let left = smallest((1..=100).collect(), both).ok();
        assert_eq!(left, Some(vec![17, 63]));
    }

    #[test]
    fn a_run_that_does_not_repeat_is_left_as_it_is() {
        let left = smallest(vec![1, 2, 3], |_| Ok(false)).ok();
        assert_eq!(left, Some(vec![1, 2, 3]));
    }
}
