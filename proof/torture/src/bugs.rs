//! Does it bite? Every bug that is planted on purpose has to be caught.
//!
//! Each is given storms that grow longer, and then every named place, until a judge finds
//! something. A build without the bug goes through the last of them first, and nothing may be found
//! there.

use std::{path::Path, time::Instant};

use hapax::seeded::Bug;

use crate::{
    report::{Verdict, say},
    town::Store,
    trial::Trial,
};

/// The storms, one after the other: so many seconds, or every named place.
const STORMS: [Option<u64>; 4] = [Some(10), Some(30), Some(60), None];
const SEED: u64 = 1;

/// Which bugs are planted, and where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Plants these alone
    #[arg(value_name = "BUG")]
    only: Vec<String>,
    /// On this store alone
    #[arg(long, value_enum)]
    store: Option<Store>,
}

/// Plants one after the other; whether all were caught.
pub(crate) fn bugs(flags: &Flags) -> anyhow::Result<Verdict> {
    let stores = match flags.store {
        Some(store) => vec![store],
        None => vec![Store::Sqlite, Store::Postgres],
    };
    let mut caught_all = true;
    say("| bug | store | caught by invariant | after s | with seed |\n|---|---|---|---:|---:|");
    for store in stores {
        if flags.only.is_empty() {
            caught_all &= row(store, None)?;
        }
        for bug in Bug::ALL {
            let is_asked = flags.only.is_empty() || flags.only.iter().any(|it| it == bug.name());
            if is_asked && is_in(bug, store) {
                caught_all &= row(store, Some(bug))?;
            }
        }
    }
    Ok(if caught_all {
        Verdict::Holds
    } else {
        Verdict::Violated
    })
}

/// Whether the store has this bug, and the storm whoever it would harm.
fn is_in(bug: Bug, store: Store) -> bool {
    match bug {
        // Relays in processes of their own are what carries with these; and who loses a part or a
        // key in a file is in the same process as who gets it, which nobody outside can see.
        Bug::ShortLease
        | Bug::FrontierById
        | Bug::FrontierOffByOne
        | Bug::DroppedWhenExhausted
        | Bug::OrderByLuck
        | Bug::NoFence => store == Store::Postgres,
        _ => true,
    }
}

/// One line of the table; whether it is as it should be.
fn row(store: Store, bug: Option<Bug>) -> anyhow::Result<bool> {
    let began = Instant::now();
    let storms = if bug.is_some() {
        &STORMS[..]
    } else {
        &STORMS[3..]
    };
    let mut found = Vec::new();
    let mut seed = SEED;
    for seconds in storms {
        let name = format!("{}-{}-{seed}", bug.map_or("none", Bug::name), store.name());
        let trial = Trial {
            store,
            seconds: *seconds,
            seed,
            bug: bug.map(Bug::name),
            blows: None,
        };
        found = trial.run(&Path::new("target/torture").join(name))?;
        if !found.is_empty() {
            break;
        }
        seed += 1;
    }
    let numbers: Vec<_> = found.iter().map(usize::to_string).collect();
    let caught = if numbers.is_empty() {
        "-".to_owned()
    } else {
        numbers.join(", ")
    };
    let (name, store) = (bug.map_or("none", Bug::name), store.name());
    let seconds = began.elapsed().as_secs();
    say(&format!(
        "| {name} | {store} | {caught} | {seconds} | {seed} |"
    ));
    Ok(found.is_empty() == bug.is_none())
}
