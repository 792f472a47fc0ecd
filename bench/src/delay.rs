//! TCP proxy that simulates network delay: bytes leave it half a round trip after they arrived.
//!
//! The timers of a runtime have a resolution of a millisecond, which is as long as the delay
//! itself. So each direction of each connection has two threads: one reads bytes and notes the
//! time; the other sleeps until shortly before the bytes are due, and spins for the rest. Bytes
//! keep their order and the pauses between them. The throughput is not limited.

use std::{
    hint::spin_loop,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

/// How much earlier than necessary a thread wakes up, because a sleep may be this much too long.
const EARLY: Duration = Duration::from_micros(80);
/// Maximum number of bytes that are forwarded at once.
const CHUNK: usize = 64 * 1024;

/// Forwards connections to a server with a delay.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Address of the server
    #[arg(long)]
    to: SocketAddr,
    /// Round trip in microseconds
    #[arg(long, default_value_t = 1_000)]
    round_trip_us: u64,
}

impl Flags {
    /// Forwards until the process is killed.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.listen);
        let listener = listener.with_context(|| format!("cannot listen on {}", self.listen))?;
        let delay = Duration::from_micros(self.round_trip_us) / 2;
        for near in listener.incoming() {
            let near = near.context("cannot accept")?;
            let far = TcpStream::connect(self.to);
            let far = far.with_context(|| format!("cannot connect to {}", self.to))?;
            carry_both_ways(&near, &far, delay)?;
        }
        Ok(())
    }
}

fn carry_both_ways(near: &TcpStream, far: &TcpStream, delay: Duration) -> anyhow::Result<()> {
    for (from, to) in [(near, far), (far, near)] {
        from.set_nodelay(true)?;
        let (send, receive) = mpsc::channel();
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        thread::Builder::new().spawn(move || note(from, delay, &send))?;
        thread::Builder::new().spawn(move || deliver(to, receive))?;
    }
    Ok(())
}

/// Bytes, and the time at which they are due at the other end.
type Chunk = (Instant, Vec<u8>);

fn note(mut from: TcpStream, delay: Duration, send: &Sender<Chunk>) {
    let mut buffer = vec![0; CHUNK];
    // If one end closes, the loop ends.
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let due = Instant::now() + delay;
        if send.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, chunks: Receiver<Chunk>) {
    for (due, bytes) in chunks {
        wait_until(due);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a separate thread, more precise than the timer of the runtime"
)]
fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if let Some(long) = left.checked_sub(EARLY) {
        thread::sleep(long);
    }
    while Instant::now() < due {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_at_least_the_delay_and_changes_nothing() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let wire = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(wire.local_addr().unwrap()).unwrap();
        let (near, _) = wire.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        let (mut there, _) = server.accept().unwrap();
        carry_both_ways(&near, &far, Duration::from_millis(2)).unwrap();
        let start = Instant::now();
        client.write_all(b"there").unwrap();
        let mut said = [0; 5];
        there.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"there");
        there.write_all(b"again").unwrap();
        client.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"again");
        assert!(start.elapsed() >= Duration::from_millis(4));
        drop(client);
        assert_eq!(
            there.read(&mut said).unwrap(),
            0,
            "the end of the stream is forwarded too"
        );
    }
}
