//! Signals: stopping, reloading, and the order of a shutdown.
//!
//! SIGTERM and SIGINT: the relay starts no new deliveries, waits for those in flight and records
//! their results, and releases its partitions to other relays; then the store is closed. A second
//! signal ends the process at once, which is safe because the store is crash-safe. SIGHUP: the
//! settings are read again.

use std::{future::Future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the relay handles.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Stop. The name of the signal is for the log.
    Stop(&'static str),
    /// Read the settings again.
    Reload,
}

impl Signals {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn heard(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Runs `ending` to its end, unless another signal to stop arrives.
    pub(crate) async fn unless_heard(&mut self, ending: impl Future<Output = ()>) {
        let mut ending = std::pin::pin!(ending);
        loop {
            tokio::select! {
                () = &mut ending => return,
                asked = self.heard() => if let Asked::Stop(signal) = asked {
                    tracing::warn!(signal, "stopping at once");
                    return;
                },
            }
        }
    }
}
