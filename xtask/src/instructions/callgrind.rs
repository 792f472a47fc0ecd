//! Runs of a program under callgrind, and what its profile counts.
//!
//! Calls of the allocator of the C library are allocations, both those of Rust, whose allocator
//! calls it, and those of SQLite. So no allocator of the program has to count.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use super::Cost;

/// The functions of the C library that allocate.
const ALLOCATORS: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

/// Runs a path `count` times, and returns what the whole run costs.
pub(super) fn run(program: &Path, folder: &Path, path: &str, count: u32) -> anyhow::Result<Cost> {
    let profile = folder.join(format!("{path}-{count}.callgrind"));
    let output = Command::new("valgrind")
        // Threads run in turn, so that they interleave in much the same way in every run.
        .args(["--tool=callgrind", "--quiet", "--fair-sched=try"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args([path, &count.to_string()])
        .output()
        .context("cannot run valgrind")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{count} times: {}: {}", output.status, said.trim());
    }
    let text = fs::read_to_string(&profile);
    read(&text.with_context(|| profile.display().to_string())?)
}

/// Parses a profile: `totals:` has the instructions, and after `cfn=NAME` the line `calls=COUNT`
/// has the calls of that function from one place.
fn read(profile: &str) -> anyhow::Result<Cost> {
    let (mut cost, mut called) = (Cost::default(), "");
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            called = name;
        } else if let Some(calls) = line.strip_prefix("calls=") {
            if ALLOCATORS.contains(&called) {
                cost.allocations += number(calls)?;
            }
        } else if let Some(total) = line.strip_prefix("totals:") {
            cost.instructions = number(total)?;
        }
    }
    if cost.instructions == 0 || cost.allocations == 0 {
        bail!("expected a total and calls of malloc in the profile, got {cost:?}");
    }
    Ok(cost)
}

/// The first number of a text.
fn number(text: &str) -> anyhow::Result<u64> {
    let first = text.split_whitespace().next();
    let number = first.and_then(|first| first.parse().ok());
    number.with_context(|| format!("expected a number, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "# callgrind format\nevents: Ir\nsummary: 900\n\nob=/bin/hot-paths\n\
        fn=alloc::alloc::alloc\n0 5\ncob=/lib/libc.so.6\ncfn=malloc\ncalls=7 0\n0 400\n\
        cfn=free\ncalls=6 0\n0 10\ncfn=malloc_consolidate\ncalls=9 0\n0 10\n\n\
        fn=sqlite3Malloc\ncfn=realloc\ncalls=2 0\n0 9\n\ntotals: 900\n";

    #[test]
    fn a_profile_has_instructions_and_the_calls_of_the_allocator() {
        let expected = Cost {
            instructions: 900,
            allocations: 9,
        };
        assert_eq!(read(PROFILE).unwrap(), expected);
    }

    #[test]
    fn a_profile_without_a_total_or_without_an_allocation_is_refused() {
        assert!(read(PROFILE.strip_suffix("totals: 900\n").unwrap()).is_err());
        assert!(read("totals: 900\n").is_err());
        assert!(read(&PROFILE.replace("calls=7", "calls=x")).is_err());
    }
}
