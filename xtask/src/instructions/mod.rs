//! `cargo x instructions`: counts what one operation of each hot path costs, and compares it with
//! the recorded figures.
//!
//! callgrind counts instructions and allocations, so the figures depend neither on the load of the
//! machine nor on its hardware counters. Each path runs N times and 2 N times. The difference,
//! divided by N, is the cost of one operation, without the start of the program. A path that is not
//! recorded fails, because nothing would notice if it became more expensive.

mod callgrind;
mod record;

use std::{fs, path::Path, process::Command, thread};

use anyhow::{Context as _, anyhow, bail};

use crate::{
    packages,
    step::call,
    tool::{self, VALGRIND},
};
use record::Record;

/// The recorded figures, relative to the root of the project.
const RECORD: &str = "bench/instructions.txt";
const RECORD_AGAIN: &str = "cargo x instructions --record";
/// The paths of `bench/hot-paths`, and N.
const PATHS: [(&str, u32); 5] = [
    ("constant", 400),
    ("replay", 400),
    ("replay-500", 400),
    // So few that SQLite does not merge its log into the database in between.
    ("first-write", 60),
    ("relay-batch", 30),
];
/// By how many percent the instructions of a path may exceed the record.
const RISE_MAX: u64 = 3;
/// By how many percent they may be below the record before the record should be lowered.
const FALL_MAX: u64 = 10;
/// By how many percent allocations may differ. Of less than a hundred, none may be added. The threads
/// of the other paths do not interleave in the same way in every run.
const ALLOCATIONS: u64 = 1;

/// What one operation costs, or a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    instructions: u64,
    allocations: u64,
}

/// Compares, or with `--record` writes the record.
pub(crate) fn instructions(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => check(root),
        [only] if only == "--record" => {
            let measured = measure()?;
            fs::write(root.join(RECORD), measured.to_string())?;
            println!("{measured}\n    recorded in {RECORD}");
            Ok(())
        }
        _ => bail!("`cargo x instructions` takes no argument except --record"),
    }
}

/// Compares the figures with the record, as the gate does.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    // Before anything is built, because without a record there is nothing to compare with.
    let recorded = Record::read(&root.join(RECORD))
        .with_context(|| format!("no figures are recorded: `{RECORD_AGAIN}` records them"))?;
    let measured = measure()?;
    println!("{measured}");
    let (failures, fallen) = compare(&recorded, &measured);
    for line in &fallen {
        println!("    {line}");
    }
    if !fallen.is_empty() {
        println!("    lower the record, so that it guards what was gained: {RECORD_AGAIN}");
    }
    if !failures.is_empty() {
        bail!(
            "{}\nif this is intended, record the new figures: {RECORD_AGAIN}",
            failures.join("\n")
        );
    }
    Ok(())
}

/// Builds the program and measures all paths at the same time.
fn measure() -> anyhow::Result<Record> {
    tool::require(&[VALGRIND])?;
    call("cargo build --release --locked --package hot-paths")?;
    let target = packages::target()?;
    let program = target.join("release/hot-paths");
    let folder = target.join("instructions");
    fs::create_dir_all(&folder)?;
    let costs = thread::scope(|scope| {
        let runs = PATHS.map(|(path, count)| {
            let (program, folder) = (&program, &folder);
            let run = move || per_operation(program, folder, path, count);
            (path, scope.spawn(run))
        });
        let ended = runs.into_iter().map(|(path, run)| {
            let cost = run.join().unwrap_or_else(|_| Err(anyhow!("panicked")));
            Ok((path.to_owned(), cost.with_context(|| path.to_owned())?))
        });
        ended.collect::<anyhow::Result<Vec<_>>>()
    });
    let (origin, costs) = (origin()?, costs?);
    Ok(Record { origin, costs })
}

/// The architecture and the compiler, which determine the instructions.
fn origin() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("--version").output();
    let compiler = String::from_utf8(output.context("cannot run rustc")?.stdout)?;
    Ok(format!("{}, {}", std::env::consts::ARCH, compiler.trim()))
}

fn per_operation(program: &Path, folder: &Path, path: &str, count: u32) -> anyhow::Result<Cost> {
    let once = callgrind::run(program, folder, path, count)?;
    let twice = callgrind::run(program, folder, path, 2 * count)?;
    difference(once, twice, count.into())
}

/// The cost of one of the `count` operations that the second run has in addition, rounded.
fn difference(once: Cost, twice: Cost, count: u64) -> anyhow::Result<Cost> {
    let each = |once: u64, twice: u64| {
        let more = twice.checked_sub(once);
        let more = more.context("twice as many operations cost less")?;
        anyhow::Ok((more + count / 2) / count)
    };
    Ok(Cost {
        instructions: each(once.instructions, twice.instructions)?,
        allocations: each(once.allocations, twice.allocations)?,
    })
}

/// Returns why the comparison fails, and the figures that have fallen, each as a line.
fn compare(recorded: &Record, measured: &Record) -> (Vec<String>, Vec<String>) {
    let (mut failures, mut fallen) = (Vec::new(), Vec::new());
    for (path, now) in &measured.costs {
        let Some(before) = recorded.cost(path) else {
            failures.push(format!("{path}: is not recorded"));
            continue;
        };
        let instructions = [before.instructions, now.instructions];
        let allocations = [before.allocations, now.allocations];
        for (what, [before, now], rise, fall) in [
            ("instructions", instructions, RISE_MAX, FALL_MAX),
            ("allocations", allocations, ALLOCATIONS, ALLOCATIONS),
        ] {
            let line = format!("{path}: {now} {what} for each operation, {before} are recorded");
            if now * 100 > before * (100 + rise) {
                failures.push(line);
            } else if now * 100 < before * (100 - fall) {
                fallen.push(line);
            }
        }
    }
    for (path, _) in &recorded.costs {
        if measured.cost(path).is_none() {
            failures.push(format!("{path}: is recorded and no longer measured"));
        }
    }
    let (before, now) = (&recorded.origin, &measured.origin);
    if !failures.is_empty() && before != now {
        failures.push(format!("recorded with {before}, measured with {now}"));
    }
    (failures, fallen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(costs: &[(&str, u64, u64)]) -> Record {
        let costs = costs.iter().map(|(path, instructions, allocations)| {
            let cost = Cost {
                instructions: *instructions,
                allocations: *allocations,
            };
            ((*path).to_owned(), cost)
        });
        Record {
            origin: "x86_64, rustc 1".to_owned(),
            costs: costs.collect(),
        }
    }

    /// What is found if a replay costs this, and 1,000 instructions and 20 allocations are recorded.
    fn found(instructions: u64, allocations: u64) -> (Vec<String>, Vec<String>) {
        let recorded = record(&[("replay", 1_000, 20)]);
        compare(&recorded, &record(&[("replay", instructions, allocations)]))
    }

    #[test]
    fn a_path_may_cost_three_percent_more_and_no_further_allocation() {
        assert_eq!(found(1_030, 20), (vec![], vec![]));
        let more = ["replay: 1031 instructions for each operation, 1000 are recorded"];
        assert_eq!(found(1_031, 20).0, more);
        let more = ["replay: 21 allocations for each operation, 20 are recorded"];
        assert_eq!(found(1_000, 21).0, more);
    }

    #[test]
    fn a_path_that_became_cheaper_asks_for_a_lower_record() {
        assert_eq!(found(900, 20), (vec![], vec![]));
        let (failures, fallen) = found(899, 19);
        assert_eq!((failures.len(), fallen.len()), (0, 2));
    }

    #[test]
    fn a_path_that_is_only_measured_or_only_recorded_fails() {
        let one = record(&[("replay", 1, 1)]);
        let both = record(&[("replay", 1, 1), ("constant", 1, 1)]);
        assert_eq!(compare(&one, &both).0, ["constant: is not recorded"]);
        let gone = ["constant: is recorded and no longer measured"];
        assert_eq!(compare(&both, &one).0, gone);
        assert_eq!(compare(&record(&[]), &one).0, ["replay: is not recorded"]);
    }

    #[test]
    fn a_failure_names_another_compiler() {
        let before = record(&[("replay", 1_000, 20)]);
        let mut now = record(&[("replay", 1_000, 21)]);
        now.origin = "x86_64, rustc 2".to_owned();
        let line = "recorded with x86_64, rustc 1, measured with x86_64, rustc 2";
        assert_eq!(compare(&before, &now).0[1], line);
    }

    #[test]
    fn the_cost_of_one_operation_is_without_the_start_and_rounded() {
        let cost = |instructions, allocations| Cost {
            instructions,
            allocations,
        };
        let (once, twice) = (cost(5_000, 130), cost(6_049, 147));
        assert_eq!(difference(once, twice, 10).unwrap(), cost(105, 2));
        assert!(difference(twice, once, 10).is_err());
    }
}
