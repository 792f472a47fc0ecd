//! Environment of the process: time, randomness, and node names.

use std::process;

use hapax::Random;
pub(crate) use hapax::telemetry::error_chain;
pub(crate) use hapax_runtime::environment::{clock, random, time};

/// A unique name of this process: host name, process id, and random digits.
pub(crate) fn node(random: &Random) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().map(|name| name.trim().to_owned());
    let host = host.filter(|name| !name.is_empty() && name.is_ascii() && name.len() <= 64);
    let host = host.unwrap_or_else(|| "relay".to_owned());
    format!("{host}-{}-{:04x}", process::id(), random.bits() & 0xffff)
}
