//! Memory of a process, from `/proc/PID/status`.

use anyhow::Context as _;

/// A figure of a `/proc/PID/status`, in mebibytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "kibibytes of memory stay far below 2^53"
)]
pub(crate) fn mebibytes(status: &str, field: &str) -> anyhow::Result<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let kibibytes = kibibytes.with_context(|| format!("/proc/PID/status has no {field}"))?;
    Ok(kibibytes as f64 / 1024.0)
}
