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
    report::{Verdict, broken, say},
    trial::Trial,
};

/// How often a part is tried.
const TRIES: usize = 2;

/// What is shrunk.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// The folder of a run that was violated
    folder: PathBuf,
    /// Minutes after which the smallest list of injections so far is printed
    #[arg(long, default_value_t = 30)]
    minutes: u64,
}

/// Finds the smallest part that still violates what the run did.
pub(crate) fn minimize(flags: &Flags) -> anyhow::Result<Verdict> {
    let artifacts = Artifacts::read(&flags.folder)?;
    let wanted = broken(&artifacts);
    if wanted.is_empty() {
        bail!(
            "{} holds: there is nothing to shrink",
            flags.folder.display()
        );
    }
    let faults = lines::read(&flags.folder.join("faults.jsonl"))?;
    let struck: Vec<_> = faults
        .iter()
        .filter_map(|it| it["number"].as_u64())
        .collect();
    let run = &artifacts.run;
    let trial = Trial {
        store: artifacts.store,
        seconds: Some(run["seconds"].as_u64().context("a run has a length")?),
        seed: run["seed"].as_u64().context("a run has a seed")?,
        bug: run["bug"].as_str(),
        injections: None,
    };
    let until = Instant::now() + Duration::from_secs(flags.minutes * 60);
    let mut number = 0;
    let smallest = smallest(struck, |part| {
        if Instant::now() > until {
            return Ok(false);
        }
        let injections = Injections(part.iter().copied().collect());
        for _ in 0..TRIES {
            number += 1;
            let folder = Path::new("target/torture").join(format!("shrink-{number}"));
            let trial = Trial {
                injections: Some(&injections),
                ..trial.clone()
            };
            let found = trial.run(&folder)?;
            let is_it = found.iter().any(|it| wanted.contains(it));
            say(&format!(
                "{} injections: {found:?} ({injections})",
                part.len()
            ));
            if is_it {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    told(&faults, &smallest);
    let command = run["command"].as_str().unwrap_or_default();
    let injections = Injections(smallest.into_iter().collect());
    say(&format!("\n    {command} --injections {injections}"));
    Ok(Verdict::Violated)
}

fn told(faults: &[Value], kept: &[u64]) {
    let is_kept = |it: &&Value| it["number"].as_u64().is_some_and(|it| kept.contains(&it));
    for fault in faults.iter().filter(is_kept) {
        say(&format!(
            "{}: {}",
            fault["number"],
            fault["how"].as_str().unwrap_or_default()
        ));
    }
}

/// The smallest part that one gets to by leaving out halves, quarters, and so on (ddmin).
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
