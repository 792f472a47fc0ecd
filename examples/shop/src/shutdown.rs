//! When to stop, and in which order.
//!
//! SIGTERM and SIGINT stop the listener; requests in flight finish; the relay
//! lets what is on the wire come home and writes it down; then the demo's
//! receivers stop, to whom it may have been talking; the stores close last.
//! A second signal ends the process at once, which a crash-safe store allows.

use std::{future::Future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for the signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal, by name.
    pub(crate) async fn heard(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Runs `ending` to its end, unless a further signal cuts it short.
    pub(crate) async fn unless_heard(&mut self, ending: impl Future<Output = ()>) {
        tokio::select! {
            () = ending => {}
            signal = self.heard() => tracing::warn!(signal, "stopping at once"),
        }
    }
}
