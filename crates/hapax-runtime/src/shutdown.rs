//! Signals: stopping and reloading.
//!
//! SIGTERM and SIGINT ask a program to end what it has begun, and then to stop. A second one ends it
//! at once, which is safe because the stores are crash-safe. SIGHUP asks a program that reloads to
//! read its settings again, and kills any other program.

use std::{
    future::{Future, pending},
    io,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that a program handles.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// Stop. The name of the signal is for the log.
    Stop(&'static str),
    /// Read the settings again.
    Reload,
}

impl Signals {
    /// Installs the handlers of SIGTERM and SIGINT.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: None,
        })
    }

    /// Installs the handlers of SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen_and_reload() -> io::Result<Self> {
        let hang_up = Some(signal(SignalKind::hangup())?);
        Ok(Self {
            hang_up,
            ..Self::listen()?
        })
    }

    /// Waits for the next signal.
    pub async fn received(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalRequest::Stop("SIGINT"),
            () = hung_up(&mut self.hang_up) => SignalRequest::Reload,
        }
    }

    /// Waits for the next signal to stop, and returns its name.
    pub async fn stopped(&mut self) -> &'static str {
        loop {
            if let SignalRequest::Stop(signal) = self.received().await {
                return signal;
            }
        }
    }

    /// Runs `ending` to its end, unless another signal to stop arrives.
    pub async fn unless_stopped(&mut self, ending: impl Future<Output = ()>) {
        tokio::select! {
            () = ending => {}
            signal = self.stopped() => tracing::warn!(signal, "stopping at once"),
        }
    }
}

async fn hung_up(hang_up: &mut Option<Signal>) {
    match hang_up {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
