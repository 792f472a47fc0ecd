//! The version of a key, as an operator has seen it.

use std::{fmt, str::FromStr};

/// The version of a key. It changes whenever the key is used again or finished.
///
/// The store chooses the numbers, except for the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// The number of owners that the key has had.
    pub epoch: i64,
    /// When it was claimed, in the unit in which the store keeps times.
    pub claimed_at: i64,
    /// The number of the transaction that last wrote its row, or a part of the number.
    pub transaction: i64,
}

/// The text is not a [`KeyVersion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the `version` of a key")]
pub struct NoKeyVersion;

impl fmt::Display for KeyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.claimed_at, self.transaction)
    }
}

impl FromStr for KeyVersion {
    type Err = NoKeyVersion;

    fn from_str(text: &str) -> Result<Self, NoKeyVersion> {
        let mut parts = text.split('.').map(str::parse);
        let mut part = || parts.next().and_then(Result::ok).ok_or(NoKeyVersion);
        let version = Self {
            epoch: part()?,
            claimed_at: part()?,
            transaction: part()?,
        };
        parts.next().map_or(Ok(version), |_| Err(NoKeyVersion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_back_as_it_is_shown() {
        let version = KeyVersion {
            epoch: 2,
            claimed_at: 1_764_054_000_123_456,
            transaction: -7_812,
        };
        assert_eq!(version.to_string(), "2.1764054000123456.-7812");
        assert_eq!(version.to_string().parse(), Ok(version));
        for text in ["", "1", "1.2", "1.2.x", "1.2.3.4", "1.2.3."] {
            assert_eq!(text.parse::<KeyVersion>(), Err(NoKeyVersion), "{text:?}");
        }
    }
}
