//! Set-up of a process: configuration layers, clock, logs, metrics, failpoints and signals.
//!
//! The `hapax` binary and the reference service are started by this crate, so that their settings,
//! their log lines and their reaction to signals are the same. A service that embeds the library
//! does not need it: the libraries take a clock, failpoints and settings as values.
//!
//! Only [`config`] is given the environment of the process, and only [`environment`] reads its
//! clock.

pub mod config;
pub mod environment;
pub mod telemetry;
pub mod failpoint;
pub mod shutdown;
