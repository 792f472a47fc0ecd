//! When to stop, when to read the settings again, and in which order things end.
//!
//! SIGTERM and SIGINT: nothing new is offered, what is on the wire comes home and is
//! written down, what this relay holds goes to the others; then the store closes. A
//! second signal ends the process at once, which a crash-safe store allows. SIGHUP:
//! the settings are read again.

use std::{future::Future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for the signals that a relay knows.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To stop; the signal's name is for the log.
    Stop(&'static str),
    /// To read the settings again.
    Reload,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// What the next signal asks for.
    pub(crate) async fn heard(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Runs `ending` to its end, unless a further signal to stop cuts it short.
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
