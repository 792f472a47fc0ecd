//! Ports for servers that are started by name, or stop and come back on the same one.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Below the ports that outgoing connections get: one of those could take the port of a server
/// that is down, or even meet itself there.
const PORTS: Range<u16> = 15_000..32_000;

/// A port of loopback that nobody listens on now.
///
/// # Panics
/// When every port is taken.
pub fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Processes that run at once begin far apart.
    let first = process::id() as usize * 7_919;
    for _ in PORTS {
        let next = first + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + u16::try_from(next % PORTS.len()).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {PORTS:?}");
}
