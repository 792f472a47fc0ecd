//! Bounds checker: everything ends in time, and no resource grows without bound.

use std::collections::BTreeMap;

use super::{Violation, violated};
use crate::artifacts::{Artifacts, OperationRecord, OperatorRecord};

/// How long the remaining work may take after the last fault.
const DRAIN_MS: u64 = 90_000;
/// The maximum memory of a shop or a relay, in bytes.
pub(super) const RESIDENT: u64 = 400 << 20;
/// Allowed growth of a process over a run, in addition to half of its initial memory.
const GROWTH: u64 = 32 << 20;
/// Number of samples from which on a run is long.
const SAMPLES: usize = 30;
/// The maximum size of the write-ahead log, in bytes.
const WAL: u64 = 512 << 20;
/// The longest time that a key is kept, in nanoseconds: two minutes of retention, the purge rounds
/// (some of which find no server), and wrong clocks.
const KEPT: u64 = 240_000_000_000;
/// Allowed number of keys beyond those of known operations, in addition to a tenth of them.
const LEFT: usize = 50;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for record in artifacts
        .operations
        .iter()
        .filter(|it| it.final_attempt().is_none())
    {
        // An operation of which only altered requests were sent is not one.
        if record.unaltered_attempts().next().is_some() {
            found.push(violated(
                13,
                format!("{} never got a final response", record.name()),
            ));
        }
    }
    let drained = artifacts.run["drained_ms"].as_u64();
    if drained.is_none_or(|it| it > DRAIN_MS) {
        found.push(violated(
            13,
            format!("the remaining work took {drained:?} ms"),
        ));
    }
    for sample in &artifacts.sizes {
        let resident = sample["resident"].as_object().into_iter().flatten();
        for (name, bytes) in resident.filter(|(_, it)| it.as_u64() > Some(RESIDENT)) {
            found.push(violated(14, format!("{name} had {bytes} bytes of memory")));
        }
        if sample["disk"]["wal"].as_u64() > Some(WAL) {
            found.push(violated(
                14,
                format!("the write-ahead log had {} bytes", sample["disk"]["wal"]),
            ));
        }
    }
    found.extend(growth(artifacts));
    found.extend(keys(artifacts));
    found
}

/// Keys that no client can have used within the retention period but that still exist.
fn keys(artifacts: &Artifacts) -> Option<Violation> {
    let from = artifacts.run["quiet_from"].as_u64()?.saturating_sub(KEPT);
    let is_young = |it: &&OperationRecord| {
        let mut ends = it.attempts.iter().map(|it| it.ended.unwrap_or(it.began));
        ends.any(|at| at >= from)
    };
    let mut young = artifacts.operations.iter().filter(is_young).count();
    // The operator and the floods of the nemesis used keys too: a rejected body may have one.
    let responses = artifacts
        .operator_records
        .iter()
        .flat_map(OperatorRecord::responses);
    young += responses.filter(|(_, at, _)| *at >= from).count();
    let floods = artifacts.faults.iter().filter(|it| it.until >= from);
    let flooded: u64 = floods.filter_map(|it| it.line["responses"].as_u64()).sum();
    young += usize::try_from(flooded).unwrap_or(usize::MAX);
    let counts = artifacts.rows("keys").iter();
    let left: u64 = counts.filter_map(|row| row["count"].as_u64()).sum();
    let is_too_many = usize::try_from(left).is_ok_and(|it| it > young + young / 10 + LEFT);
    let what =
        format!("{left} keys are left, and {young} operations are recent enough to have one");
    is_too_many.then(|| violated(14, what))
}

/// Memory growth of a program: the last third of a long run compared with the first.
fn growth(artifacts: &Artifacts) -> Vec<Violation> {
    let mut samples: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for sample in &artifacts.sizes {
        let resident = sample["resident"].as_object().into_iter().flatten();
        // A process that is down has none.
        let resident = resident.filter_map(|(name, bytes)| Some((name, bytes.as_u64()?)));
        for (name, bytes) in resident.filter(|(_, bytes)| *bytes > 0) {
            samples.entry(name).or_default().push(bytes);
        }
    }
    let mean = |bytes: &[u64]| bytes.iter().sum::<u64>() / bytes.len() as u64;
    let long = samples
        .into_iter()
        .filter(|(_, bytes)| bytes.len() >= SAMPLES);
    long.filter_map(|(name, bytes)| {
        let third = bytes.len() / 3;
        let (first, last) = (mean(&bytes[..third]), mean(&bytes[bytes.len() - third..]));
        let grows = last > first + first / 2 + GROWTH;
        grows.then(|| {
            violated(
                14,
                format!("{name} went from {first} to {last} bytes of memory"),
            )
        })
    })
    .collect()
}
