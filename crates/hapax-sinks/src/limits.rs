//! The bounds of the sinks, with unit and reason; those of the relay are `hapax::limits`.

#[cfg(any(feature = "webhook", feature = "smtp"))]
use std::time::Duration;

/// The longest that a Retry-After is believed: the longest step of the webhook schedule.
#[cfg(feature = "webhook")]
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Connections that a webhook keeps for later: what one destination uses at once.
#[cfg(feature = "webhook")]
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// How long a connection is kept for later: less than what servers and balancers allow.
#[cfg(feature = "webhook")]
pub const IDLE_CONNECTION: Duration = Duration::from_secs(50);
/// How often a busy HTTP/2 connection is asked whether it lives, and how long it may think.
#[cfg(feature = "webhook")]
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events that one write to a file takes: each write waits for the disk.
#[cfg(feature = "file")]
pub const LINES_MAX: usize = 512;
/// Connections to a mail server that are kept for the next mail.
#[cfg(feature = "smtp")]
pub const IDLE_MAILS_MAX: usize = 8;
/// How long a mail server's connection is kept: servers must allow five minutes, many do not.
#[cfg(feature = "smtp")]
pub const IDLE_MAIL: Duration = Duration::from_secs(30);
/// How long a mail server's connection is taken to live without asking.
#[cfg(feature = "smtp")]
pub const IDLE_MAIL_TRUSTED: Duration = Duration::from_secs(1);
/// Bytes of a mail's subject: more is a mistake in a template.
#[cfg(feature = "smtp")]
pub const SUBJECT_BYTES_MAX: usize = 900;
