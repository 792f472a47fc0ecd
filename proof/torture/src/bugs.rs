//! `torture bugs`: checks that every mutant (a build with a seeded bug) is caught.
//!
//! Each mutant goes through random runs of growing length and then through every failpoint, until a
//! checker reports a violation. A build without a seeded bug goes through the same runs first and
//! must hold, so that a failure caused by a slow machine is not credited to a mutant. Several
//! mutants run at once, because a run waits more than it computes.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use anyhow::bail;

use crate::{
    deployment::Store,
    mutants::Mutant,
    report::{Verdict, print},
    separate_run::SeparateRun,
};

/// The runs, one after the other: seconds of random faults, or `None` for every failpoint.
const RUNS: [Option<u64>; 4] = [Some(10), Some(30), Some(60), None];
/// Seed of the first run; each run has a different one.
const SEED: u64 = 1;
/// Mutants of a store that run at once.
const AT_ONCE: usize = 2;

/// Arguments of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Runs only these bugs
    #[arg(value_name = "BUG", value_parser = Mutant::named)]
    only: Vec<Mutant>,
    /// Runs only on this store
    #[arg(long, value_enum)]
    store: Option<Store>,
}

/// Runs every mutant, on both stores at once; whether all were found.
pub(crate) fn bugs(flags: &Flags) -> anyhow::Result<Verdict> {
    let stores = match flags.store {
        Some(store) => vec![store],
        None => vec![Store::Sqlite, Store::Postgres],
    };
    let all = Mutant::all()?;
    let planted = |store: &Store| planted(*store, &all, &flags.only);
    let tables: Vec<_> = stores.iter().map(planted).collect();
    if tables.iter().all(Vec::is_empty) {
        bail!("no run on these stores can find these bugs");
    }
    print("| bug | store | caught by invariant | after s | with seed |\n|---|---|---|---:|---:|");
    let is_expected = thread::scope(|scope| {
        let runs: Vec<_> = stores
            .iter()
            .zip(&tables)
            .map(|(store, bugs)| scope.spawn(|| table(*store, bugs)))
            .collect();
        runs.into_iter().all(|run| run.join().unwrap_or(false))
    });
    Ok(if is_expected {
        Verdict::Holds
    } else {
        Verdict::Violated
    })
}

/// Work for one store: the given mutants, or the build without a bug followed by every mutant.
fn planted<'a>(store: Store, all: &'a [Mutant], only: &[Mutant]) -> Vec<Option<&'a Mutant>> {
    let sound = only.is_empty().then_some(None);
    let chosen = all
        .iter()
        .filter(|bug| only.is_empty() || only.contains(bug));
    let planted = chosen.filter(|bug| bug.is_in(store)).map(Some);
    sound.into_iter().chain(planted).collect()
}

/// Runs the mutants of one store and prints their rows; whether each was found, and the build without
/// a bug held. A mutant that cannot be run counts as not found.
fn table(store: Store, bugs: &[Option<&Mutant>]) -> bool {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut is_expected = true;
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            is_expected &= row(store, *bug).unwrap_or_else(|error| {
                let (name, store) = (name(*bug), store.name());
                print(&format!("| {name} | {store} | not run: {error:#} | | |"));
                false
            });
        }
        is_expected
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().all(|it| it.join().unwrap_or(false))
    })
}

fn name(bug: Option<&Mutant>) -> &str {
    bug.map_or("none", |bug| &bug.name)
}

/// Runs one mutant and prints its row; whether the result is the expected one.
fn row(store: Store, bug: Option<&Mutant>) -> anyhow::Result<bool> {
    let began = Instant::now();
    let (name, on) = (name(bug), store.name());
    let mut caught = None;
    for (seed, seconds) in (SEED..).zip(RUNS) {
        let run = SeparateRun {
            store,
            seconds,
            seed,
            bug: bug.map(|bug| bug.name.as_str()),
            injections: None,
        };
        let folder = format!("target/torture/{name}-{on}-{seed}");
        let found = run.run(Path::new(&folder))?;
        if !found.is_empty() {
            let numbers: Vec<_> = found.iter().map(usize::to_string).collect();
            caught = Some((numbers.join(", "), seed.to_string()));
            break;
        }
    }
    let is_as_planted = caught.is_some() == bug.is_some();
    let nothing = || ("-".to_owned(), "-".to_owned());
    let (invariants, seed) = caught.unwrap_or_else(nothing);
    let seconds = began.elapsed().as_secs();
    print(&format!(
        "| {name} | {on} | {invariants} | {seconds} | {seed} |"
    ));
    Ok(is_as_planted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_bug_goes_first_unless_bugs_are_named() {
        for store in [Store::Sqlite, Store::Postgres] {
            let all = Mutant::all().unwrap();
            let bugs = planted(store, &all, &[]);
            assert_eq!(bugs.first(), Some(&None));
            assert_eq!(bugs.iter().flatten().count() + 1, bugs.len());
            let named = ["no-fingerprint", "check-then-insert"].map(mutant);
            let expected = [Some(&named[1]), Some(&named[0])];
            assert_eq!(planted(store, &all, &named), expected);
        }
    }

    #[test]
    fn a_bug_that_the_store_has_not_is_refused() {
        let flags = Flags {
            only: vec![mutant("no-fence")],
            store: Some(Store::Sqlite),
        };
        assert!(bugs(&flags).is_err());
    }

    #[test]
    fn a_row_that_cannot_be_run_fails_the_table() {
        // The test binary cannot run as `torture`.
        assert!(!table(Store::Sqlite, &[Some(&mutant("no-fence"))]));
        assert!(!table(Store::Sqlite, &[None]));
    }

    fn mutant(name: &str) -> Mutant {
        Mutant::named(name).unwrap()
    }
}
