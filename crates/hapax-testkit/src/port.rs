//! Free ports for servers that need a known port, or that restart on the same port.

use std::{
    net::{TcpListener, UdpSocket},
    ops::Range,
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Below the ports of outgoing connections: an outgoing connection could take the port of a server
/// that is down, or even connect to itself.
const PORTS: Range<u16> = 15_000..32_000;

/// Holds the reservations until the process ends, however it ends.
static RESERVED: Mutex<Vec<Reservation>> = Mutex::new(Vec::new());

/// A port of loopback that is currently unused, and that no other process gets from this function as
/// long as this process lives: its server may be down when others look for a port.
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
        if let Some(reservation) = Reservation::of(port)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
            reserved.push(reservation);
            return port;
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// Reserves a TCP port for this process: it holds the UDP port of the same number, which no server
/// of the tests uses.
#[derive(Debug)]
struct Reservation {
    _socket: UdpSocket,
}

impl Reservation {
    /// Nothing if a process has reserved this port.
    fn of(port: u16) -> Option<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", port)).ok()?;
        Some(Self { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stays_reserved_while_its_server_is_down() {
        let port = free_port();
        drop(TcpListener::bind(("127.0.0.1", port)).unwrap());
        assert!(Reservation::of(port).is_none(), "{port} is given twice");
    }
}
