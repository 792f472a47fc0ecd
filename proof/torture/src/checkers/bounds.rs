//! Bounds checker: everything ends in time, and no resource grows without bound.

use std::collections::BTreeMap;

use super::{Violation, violated};
use crate::artifacts::{Artifacts, Operated, Wished};

/// How long what is left may take once the faults are over.
const DRAIN_MS: u64 = 90_000;
/// The most memory that a shop or a relay may have.
pub(super) const RESIDENT: u64 = 400 << 20;
/// Allowed growth of a process over a run, in addition to half of its initial memory.
const CREEP: u64 = 32 << 20;
/// Looks from which on a run is long.
const LOOKS: usize = 30;
/// The most that a write-ahead log may have.
const WAL: u64 = 512 << 20;
/// The longest time that a key is kept, in nanoseconds: two minutes of retention, the purge rounds
/// (some of which find no server), and wrong clocks.
const KEPT: u64 = 240_000_000_000;
/// Allowed number of keys beyond those of known operations, in addition to a tenth of them.
const LEFT: usize = 50;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for wished in artifacts
        .operations
        .iter()
        .filter(|it| it.lasting().is_none())
    {
        // One that was only ever asked for with another body is none.
        if wished.asked().next().is_some() {
            found.push(violated(
                13,
                format!("{} was never answered", wished.name()),
            ));
        }
    }
    let drained = artifacts.run["drained_ms"].as_u64();
    if drained.is_none_or(|it| it > DRAIN_MS) {
        found.push(violated(
            13,
            format!("what was left took {drained:?} ms to drain"),
        ));
    }
    for look in &artifacts.sizes {
        let resident = look["resident"].as_object().into_iter().flatten();
        for (name, bytes) in resident.filter(|(_, it)| it.as_u64() > Some(RESIDENT)) {
            found.push(violated(14, format!("{name} had {bytes} bytes of memory")));
        }
        if look["disk"]["wal"].as_u64() > Some(WAL) {
            found.push(violated(
                14,
                format!("the write-ahead log had {} bytes", look["disk"]["wal"]),
            ));
        }
    }
    found.extend(creep(artifacts));
    found.extend(keys(artifacts));
    found
}

/// Keys that no client can have used within the retention period but that still exist.
fn keys(artifacts: &Artifacts) -> Option<Violation> {
    let from = artifacts.run["quiet_from"].as_u64()?.saturating_sub(KEPT);
    let is_young = |it: &&Wished| {
        let mut ends = it.attempts.iter().map(|it| it.ended.unwrap_or(it.began));
        ends.any(|at| at >= from)
    };
    let mut young = artifacts.operations.iter().filter(is_young).count();
    // So have those that the storm asked under by itself: a body that is refused may be one as well.
    let operated = artifacts.operated.iter().flat_map(Operated::answers);
    young += operated.filter(|(_, at, _)| *at >= from).count();
    let floods = artifacts.faults.iter().filter(|it| it.until >= from);
    let refused: u64 = floods.filter_map(|it| it.told["answers"].as_u64()).sum();
    young += usize::try_from(refused).unwrap_or(usize::MAX);
    let counts = artifacts.rows("keys").iter();
    let left: u64 = counts.filter_map(|row| row["count"].as_u64()).sum();
    let is_too_many = usize::try_from(left).is_ok_and(|it| it > young + young / 10 + LEFT);
    let what = format!("{left} keys are left of {young} wishes that are young enough for one");
    is_too_many.then(|| violated(14, what))
}

/// Memory growth of a program: the last third of a long run compared with the first.
fn creep(artifacts: &Artifacts) -> Vec<Violation> {
    let mut looks: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for look in &artifacts.sizes {
        let resident = look["resident"].as_object().into_iter().flatten();
        // One that is down at the moment has none.
        let resident = resident.filter_map(|(name, bytes)| Some((name, bytes.as_u64()?)));
        for (name, bytes) in resident.filter(|(_, bytes)| *bytes > 0) {
            looks.entry(name).or_default().push(bytes);
        }
    }
    let mean = |bytes: &[u64]| bytes.iter().sum::<u64>() / bytes.len() as u64;
    let long = looks.into_iter().filter(|(_, bytes)| bytes.len() >= LOOKS);
    long.filter_map(|(name, bytes)| {
        let third = bytes.len() / 3;
        let (first, last) = (mean(&bytes[..third]), mean(&bytes[bytes.len() - third..]));
        let grows = last > first + first / 2 + CREEP;
        grows.then(|| {
            violated(
                14,
                format!("{name} went from {first} to {last} bytes of memory"),
            )
        })
    })
    .collect()
}
