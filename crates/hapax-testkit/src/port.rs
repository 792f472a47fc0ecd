//! Free ports for servers that need a known port, or that restart on the same port.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Below the ports of outgoing connections: an outgoing connection could take the port of a server
/// that is down, or even connect to itself.
const PORTS: Range<u16> = 15_000..32_000;

/// A port of loopback that is currently unused.
///
/// # Panics
/// Panics if all ports are in use.
pub fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Concurrent processes start at distant ports.
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
