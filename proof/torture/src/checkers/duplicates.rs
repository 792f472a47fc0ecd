//! Duplicates checker: a delivery is repeated only if its receiver failed or a related fault
//! happened shortly before; and never before the end of the receiver's `Retry-After`.

use std::collections::{BTreeMap, HashMap};

use super::{Violation, violated};
use crate::{
    artifacts::{Arrival, Artifacts, Fault, Received},
    deployment::{BROKER, MAILBOX},
    nemesis::REPLAY_WINDOW,
};

const SECOND: u64 = 1_000_000_000;
/// How long before a fault a delivery may have happened whose settlement was lost: the lease of the
/// process that was hit, plus the time that a settlement takes to reach the disk.
const UNSETTLED: u64 = 4 * SECOND;
/// How long after a fault its duplicates may arrive.
const UNREAD: u64 = 3 * SECOND;
/// How long a replay may take after it was requested.
const JOB: u64 = 20 * SECOND;
/// How long after a restore earlier deliveries may be repeated.
const RESTORED: u64 = 60 * SECOND;
/// Allowed difference between the clocks at both ends of a wait.
const EARLY: u64 = SECOND / 20;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, received) in artifacts.receivers() {
        for [first, again] in pairs(received) {
            if cause(name, first, again, artifacts).is_none() {
                let what = format!(
                    "{name}: no fault explains the duplicate of {} at {}",
                    again.id, again.at
                );
                found.push(violated(7, what));
            }
            found.extend(early(name, first, again, artifacts));
        }
        if received.redirected > 0 {
            let what = format!(
                "{} deliveries for {name} followed a redirect",
                received.redirected
            );
            found.push(violated(12, what));
        }
    }
    found
}

/// The number of duplicate deliveries by cause.
pub(crate) fn causes(artifacts: &Artifacts) -> BTreeMap<String, usize> {
    let mut causes = BTreeMap::new();
    for (name, received) in artifacts.receivers() {
        for [first, again] in pairs(received) {
            let cause = cause(name, first, again, artifacts);
            *causes
                .entry(cause.unwrap_or_else(|| "unexplained".to_owned()))
                .or_default() += 1;
        }
    }
    causes
}

/// Each arrival of an event with the one before.
fn pairs(received: &Received) -> Vec<[&Arrival; 2]> {
    let mut last: HashMap<&str, &Arrival> = HashMap::new();
    let mut pairs = Vec::new();
    for arrival in &received.arrivals {
        if let Some(first) = last.insert(&arrival.id, arrival) {
            pairs.push([first, arrival]);
        }
    }
    pairs
}

fn cause(name: &str, first: &Arrival, again: &Arrival, artifacts: &Artifacts) -> Option<String> {
    if !matches!(first.mode.as_str(), "normal" | "slow" | "late" | "held") {
        return Some(format!("receiver: {}", first.mode));
    }
    let ended = first.responded.unwrap_or(first.at);
    let is_close = |fault: &&Fault| match fault.kind.as_str() {
        // A replay offers events again that were delivered in its window or were in flight at that
        // time. Events that were emitted later are not part of it.
        "replay" => {
            first.at + REPLAY_WINDOW >= fault.from
                && first.at <= fault.until + UNREAD
                && fault.from <= again.at
                && again.at <= fault.until + JOB
        }
        // The backup does not contain deliveries that happened after it was taken, and relays
        // continue from the frontier in the backup. Events delivered in between may be delivered
        // again for as long as the backlog takes.
        "restore" => {
            first.at <= fault.until + UNREAD
                && again.at <= fault.until + RESTORED
                && fault.from <= again.at
        }
        _ => fault.from <= again.at.min(ended + UNSETTLED) && fault.until + UNREAD >= first.at,
    };
    let faults = artifacts.faults.iter().filter(|it| can_explain(it));
    let mut close = faults.filter(is_close);
    close
        .find(|fault| concerns(fault, name))
        .map(|fault| fault.kind.clone())
}

/// Whether a fault can explain a duplicate although it was not recorded as effective: a process
/// that never reaches its failpoint is killed, which is a short pause; a process that waits for a
/// lock delays others; and a connection is cut when a link is repaired.
fn can_explain(fault: &Fault) -> bool {
    let always = [
        "failpoint",
        "kill during delivery",
        "pause",
        "lock",
        "network",
        "commit request lost",
        "commit response lost",
    ];
    fault.took_effect || always.contains(&fault.kind.as_str())
}

/// Whether a fault can have kept the outcome of a delivery to this receiver from being written.
fn concerns(fault: &Fault, name: &str) -> bool {
    // There is no proxy between the shops and the mailbox, so network faults cannot affect it.
    let (owner, database, link, receiver) = match name {
        "hook" => ("Shop(", "Database(", Some("Receiver(0)"), "Remote(0)"),
        "mail" => ("Shop(", "Database(", None, MAILBOX),
        "feed" => ("Relay(", "RelayDatabase", Some("Receiver(1)"), "Remote(1)"),
        _ => ("Relay(", "RelayDatabase", Some("Receiver(2)"), BROKER),
    };
    match fault.kind.as_str() {
        "crash" | "terminate" | "connection limit" | "full disk" | "restore" => true,
        // Relays never use the tables of the shop.
        "lock" => owner == "Shop(" || !fault.injection.contains("\"shop_"),
        "clock" => fault.injection.contains(owner) || fault.injection.contains("None"),
        "kill during delivery" => owner == "Shop(",
        "replay" => name == "feed",
        "kill" | "kill again" | "pause" | "kill during drain" | "failpoint" => {
            fault.injection.contains(owner) || fault.injection.contains(receiver)
        }
        "network" | "commit request lost" | "commit response lost" => {
            link.is_some_and(|it| fault.injection.contains(it))
                || fault.injection.contains(&format!("({database}"))
                || fault.injection.contains(receiver)
        }
        _ => false,
    }
}

/// A repeated attempt before the receiver's `Retry-After` was over, without a fault that explains it.
fn early(name: &str, first: &Arrival, again: &Arrival, artifacts: &Artifacts) -> Option<Violation> {
    let wait = first.retry_after? * SECOND;
    if again.at + EARLY >= first.at + wait {
        return None;
    }
    let normal = Arrival {
        mode: "normal".to_owned(),
        ..first.clone()
    };
    if cause(name, &normal, again, artifacts).is_some() {
        return None;
    }
    let waited = (again.at - first.at) / 1_000_000;
    Some(violated(
        12,
        format!(
            "{name}: {} was repeated after {waited} ms, Retry-After was {wait} ns",
            again.id
        ),
    ))
}
