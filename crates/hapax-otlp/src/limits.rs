//! Every bound of the export, with its unit and its reason.

use std::time::Duration;

/// Spans that wait to be sent: some seconds of a busy service, a few megabytes.
pub(crate) const QUEUE_SPANS: usize = 4_096;
/// Spans of one request to the collector.
pub(crate) const BATCH_SPANS: usize = 512;
/// How long a span waits at most for others to share its request.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// How long one request to the collector may take.
pub(crate) const SEND_MAX: Duration = Duration::from_secs(10);
/// How often a batch is sent before it is dropped.
pub(crate) const TRIES: u32 = 3;
/// How long the first wait between two tries is; it doubles.
pub(crate) const RETRY: Duration = Duration::from_millis(500);
/// Bytes of the collector's answer that are read.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of the collector's answer is waited for behind its status.
pub(crate) const BODY_MAX: Duration = Duration::from_secs(1);
/// How long the end waits for what is still to be sent.
pub(crate) const END_MAX: Duration = Duration::from_secs(3);
/// How long a connection to the collector is kept that nobody uses.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Bytes of one text of a span: names and words, never a document.
pub(crate) const TEXT_BYTES_MAX: usize = 256;
