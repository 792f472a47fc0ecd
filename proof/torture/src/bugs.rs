//! `torture bugs`: checks that every mutant (a build with a seeded bug) is caught.
//!
//! Each mutant runs under storms of growing length and then at every named failpoint, until a
//! checker reports a violation. A build without a seeded bug runs through the same storms first and
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
    report::{Verdict, say},
    trial::Trial,
};

/// The storms, one after the other: so many seconds, or every named place.
const STORMS: [Option<u64>; 4] = [Some(10), Some(30), Some(60), None];
/// Of the first storm; each has its own.
const SEED: u64 = 1;
/// Rows of a store that are under way at once.
const AT_ONCE: usize = 2;

/// Which bugs are planted, and where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Plants these alone
    #[arg(value_name = "BUG", value_parser = Mutant::named)]
    only: Vec<Mutant>,
    /// On this store alone
    #[arg(long, value_enum)]
    store: Option<Store>,
}

/// Plants one after the other, on both stores at once; whether all were caught.
pub(crate) fn bugs(flags: &Flags) -> anyhow::Result<Verdict> {
    let stores = match flags.store {
        Some(store) => vec![store],
        None => vec![Store::Sqlite, Store::Postgres],
    };
    let all = Mutant::all()?;
    let planted = |store: &Store| planted(*store, &all, &flags.only);
    let tables: Vec<_> = stores.iter().map(planted).collect();
    if tables.iter().all(Vec::is_empty) {
        bail!("SQLite has none of these bugs");
    }
    say("| bug | store | caught by invariant | after s | with seed |\n|---|---|---|---:|---:|");
    let is_as_it_should_be = thread::scope(|scope| {
        let runs: Vec<_> = stores
            .iter()
            .zip(&tables)
            .map(|(store, bugs)| scope.spawn(|| table(*store, bugs)))
            .collect();
        runs.into_iter().all(|run| run.join().unwrap_or(false))
    });
    Ok(if is_as_it_should_be {
        Verdict::Holds
    } else {
        Verdict::Violated
    })
}

/// Work for one store: the given mutants, or the build without a bug followed by every mutant.
fn planted<'a>(store: Store, all: &'a [Mutant], only: &[Mutant]) -> Vec<Option<&'a Mutant>> {
    let sound = only.is_empty().then_some(None);
    let asked = all
        .iter()
        .filter(|bug| only.is_empty() || only.contains(bug));
    let planted = asked.filter(|bug| bug.is_in(store)).map(Some);
    sound.into_iter().chain(planted).collect()
}

/// The rows of one store; whether all are as they should be. One that cannot be run is not.
fn table(store: Store, bugs: &[Option<&Mutant>]) -> bool {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut is_as_it_should_be = true;
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            is_as_it_should_be &= row(store, *bug).unwrap_or_else(|error| {
                let (name, store) = (name(*bug), store.name());
                say(&format!("| {name} | {store} | not run: {error:#} | | |"));
                false
            });
        }
        is_as_it_should_be
    };
    thread::scope(|scope| {
        let hands: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(some)).collect();
        hands.into_iter().all(|it| it.join().unwrap_or(false))
    })
}

fn name(bug: Option<&Mutant>) -> &str {
    bug.map_or("none", |bug| &bug.name)
}

/// One line of the table; whether it is as it should be.
fn row(store: Store, bug: Option<&Mutant>) -> anyhow::Result<bool> {
    let began = Instant::now();
    let (name, on) = (name(bug), store.name());
    let mut caught = None;
    for (seed, seconds) in (SEED..).zip(STORMS) {
        let trial = Trial {
            store,
            seconds,
            seed,
            bug: bug.map(|bug| bug.name.as_str()),
            injections: None,
        };
        let folder = format!("target/torture/{name}-{on}-{seed}");
        let found = trial.run(Path::new(&folder))?;
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
    say(&format!(
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
            let asked = [Some(&named[1]), Some(&named[0])];
            assert_eq!(planted(store, &all, &named), asked);
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
