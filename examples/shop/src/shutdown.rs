//! Signals and the order of shutdown.
//!
//! SIGTERM and SIGINT stop the listener. Requests in flight finish. The relay waits for its current
//! offers and settles their outcomes. Then the demo's receivers stop, which may have been receiving
//! those offers. The stores close last. A second signal ends the process at once, which a
//! crash-safe store allows.

use std::{future::Future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub(crate) async fn heard(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Runs `ending` to completion, unless another signal arrives first.
    pub(crate) async fn unless_heard(&mut self, ending: impl Future<Output = ()>) {
        tokio::select! {
            () = ending => {}
            signal = self.heard() => tracing::warn!(signal, "stopping at once"),
        }
    }
}
