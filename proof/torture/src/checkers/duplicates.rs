//! Duplicates checker: a delivery is repeated only if its receiver failed or a related fault
//! happened shortly before; and never before the time that the receiver asked to wait.

use std::collections::{BTreeMap, HashMap};

use super::{Violation, violated};
use crate::{
    artifacts::{Arrival, Artifacts, Fault, Received},
    deployment::{BROKER, MAILBOX},
    nemesis::REPLAYED,
};

const SECOND: u64 = 1_000_000_000;
/// How long before a fault a delivery may have happened whose settlement was lost: the lease of the
/// process that was hit, plus the time that a settlement takes to reach the disk.
const UNSETTLED: u64 = 4 * SECOND;
/// How long after a fault what it left may arrive.
const UNREAD: u64 = 3 * SECOND;
/// How long after it was asked for a replay may still be at work.
const JOB: u64 = 20 * SECOND;
/// How long after a restore what was delivered before it may come again.
const RESTORED: u64 = 60 * SECOND;
/// Allowed difference between the clocks at both ends of a wait.
const EARLY: u64 = SECOND / 20;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, received) in artifacts.receivers() {
        for [first, again] in pairs(received) {
            if cause(name, first, again, artifacts).is_none() {
                let what = format!(
                    "{name}: nothing explains why {} came again at {}",
                    again.id, again.at
                );
                found.push(violated(7, what));
            }
            found.extend(early(name, first, again, artifacts));
        }
        if received.strayed > 0 {
            let what = format!(
                "{} deliveries for {name} followed a redirect",
                received.strayed
            );
            found.push(violated(12, what));
        }
    }
    found
}

/// How many deliveries were repeated, by what explains it.
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
    if !matches!(first.mood.as_str(), "kind" | "slow" | "late" | "held") {
        return Some(format!("receiver: {}", first.mood));
    }
    let ended = first.answered.unwrap_or(first.at);
    let lies_close = |fault: &&Fault| match fault.word.as_str() {
        // A replay offers events again that were delivered in its window or were in flight at that
        // time. Events that were emitted later are not part of it.
        "replay" => {
            first.at + REPLAYED >= fault.from
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
    let faults = artifacts.faults.iter().filter(|it| does_harm(it));
    let mut close = faults.filter(lies_close);
    close
        .find(|fault| concerns(fault, name))
        .map(|fault| fault.word.clone())
}

/// Whether a fault can explain a duplicate although it was not recorded as effective: a process
/// that never reaches its failpoint is killed, which is a short pause; a process that waits for a
/// lock delays others; and a connection is cut when a link is repaired.
fn does_harm(fault: &Fault) -> bool {
    let always = [
        "place",
        "kill delivering",
        "pause",
        "lock",
        "net",
        "commit unheard",
        "commit untold",
    ];
    fault.bit || always.contains(&fault.word.as_str())
}

/// Whether a fault can have kept the outcome of a delivery to this receiver from being written.
fn concerns(fault: &Fault, name: &str) -> bool {
    // There is no proxy between the shops and the mailbox, so network faults cannot affect it.
    let (carrier, rows, hook, far) = match name {
        "hook" => ("Shop(", "Rows(", Some("Hook(0)"), "Far(0)"),
        "mail" => ("Shop(", "Rows(", None, MAILBOX),
        "feed" => ("Relay(", "RelayRows", Some("Hook(1)"), "Far(1)"),
        _ => ("Relay(", "RelayRows", Some("Hook(2)"), BROKER),
    };
    match fault.word.as_str() {
        "crash" | "terminate" | "crowd" | "full disk" | "restore" => true,
        // No relay ever touches a table of the shop's own.
        "lock" => carrier == "Shop(" || !fault.how.contains("\"shop_"),
        "clock" => fault.how.contains(carrier) || fault.how.contains("None"),
        "kill delivering" => carrier == "Shop(",
        "replay" => name == "feed",
        "kill" | "kill again" | "pause" | "kill in drain" | "place" => {
            fault.how.contains(carrier) || fault.how.contains(far)
        }
        "net" | "commit unheard" | "commit untold" => {
            hook.is_some_and(|it| fault.how.contains(it))
                || fault.how.contains(&format!("({rows}"))
                || fault.how.contains(far)
        }
        _ => false,
    }
}

/// A repeated attempt before the time that the receiver asked for, without a fault that explains
/// it.
fn early(name: &str, first: &Arrival, again: &Arrival, artifacts: &Artifacts) -> Option<Violation> {
    let wait = first.retry_after? * SECOND;
    if again.at + EARLY >= first.at + wait {
        return None;
    }
    let calm = Arrival {
        mood: "kind".to_owned(),
        ..first.clone()
    };
    if cause(name, &calm, again, artifacts).is_some() {
        return None;
    }
    let waited = (again.at - first.at) / 1_000_000;
    Some(violated(
        12,
        format!(
            "{name}: {} came after {waited} ms, Retry-After was {wait} ns",
            again.id
        ),
    ))
}
