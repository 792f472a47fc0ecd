//! Limits of the export, with unit and reason.

use std::time::Duration;

/// Maximum number of queued spans: some seconds of a busy service, a few megabytes.
pub(crate) const QUEUE_SPANS: usize = 4_096;
/// Maximum number of spans per request.
pub(crate) const BATCH_SPANS: usize = 512;
/// Maximum time for which a span waits for others to share its request.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// Timeout of a request to the collector.
pub(crate) const SEND_MAX: Duration = Duration::from_secs(10);
/// Maximum number of attempts to send a batch.
pub(crate) const TRIES: u32 = 3;
/// The first and the longest wait between two attempts.
pub(crate) const RETRIES: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(1));
/// Maximum size of a response in bytes.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Time limit for reading the body of a response.
pub(crate) const BODY_MAX: Duration = Duration::from_secs(1);
/// Time limit of the last export when the service ends.
pub(crate) const END_MAX: Duration = Duration::from_secs(3);
/// Maximum idle time of a connection to the collector.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Maximum length of a text of a span in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 256;
