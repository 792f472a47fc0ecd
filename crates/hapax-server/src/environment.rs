//! Environment of the process: time, randomness, and node names.

use std::{
    fs::File,
    io::{self, Read as _},
    process,
};

use hapax::Random;
pub(crate) use hapax::telemetry::error_chain;
pub(crate) use hapax_runtime::environment::{clock, random, time};

/// 32 bytes of the operating system's randomness, for a secret.
pub(crate) fn secret_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A unique name of this process: host name, process id, and random digits.
pub(crate) fn node(random: &Random) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().map(|name| name.trim().to_owned());
    let host = host.filter(|name| !name.is_empty() && name.is_ascii() && name.len() <= 64);
    let host = host.unwrap_or_else(|| "relay".to_owned());
    format!("{host}-{}-{:04x}", process::id(), random.bits() & 0xffff)
}
