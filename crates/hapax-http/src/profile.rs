//! Profiles of the HTTP contract, and the modes of the fingerprint.
//!
//! A [`Profile`] makes an operation speak another protocol that has idempotency keys: its statuses,
//! its error codes, and what it demands of keys, bodies and retention. A profile can make an
//! operation stricter. It never weakens a promise of the contract. The page "Profiles" of the book
//! has all of this in one table.

use std::time::Duration;

use http::{Method, StatusCode};

/// A day: the shortest retention that some protocols allow.
const DAY: Duration = Duration::from_hours(24);

/// How two requests with the same key are compared by their bodies.
///
/// Fingerprints of different modes are never equal. If the mode of an operation with stored keys is
/// changed, a repetition of an earlier request is a mismatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FingerprintMode {
    /// By the bytes as they were sent, for every content type. JSON with another order of members
    /// and a multipart body with another boundary are other requests, and JSON is not checked.
    Raw,
    /// By canonical JSON, with numbers as they were sent: `1` and `1.0` are different. Multipart
    /// bodies are compared part by part, and all others by their bytes. This is the default.
    #[default]
    Json,
    /// Like [`Json`](Self::Json), but numbers are compared by their exact decimal value: `1`, `1.0`
    /// and `10e-1` are equal, and so are `0` and `-0`. Integers that are equal only as doubles are
    /// different.
    JsonSemantic,
}

impl FingerprintMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Json, Self::JsonSemantic];

    /// The name in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Json => "json",
            Self::JsonSemantic => "json-semantic",
        }
    }

    /// Returns the version of the fingerprint's format, which is its first byte. A change makes
    /// every repetition of a stored request a mismatch.
    pub(crate) const fn version(self) -> u8 {
        match self {
            Self::Json => 1,
            Self::Raw => 2,
            Self::JsonSemantic => 3,
        }
    }
}

/// The protocol that the clients of an operation speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Hapax's own contract. A mismatch is 409. This is the default.
    #[default]
    Hapax,
    /// The IETF draft "The Idempotency-Key HTTP Header Field": a mismatch is 422.
    Ietf,
    /// Stripe: a mismatch is 400, and a replay has the header `Idempotent-Replayed: true`.
    Stripe,
    /// The Agentic Commerce Protocol: every POST needs a key, bodies are compared by
    /// [`FingerprintMode::JsonSemantic`], a mismatch is 422, failures are not stored, and responses
    /// are kept for at least 24 hours. Problems have the protocol's codes, and a replay has the
    /// header `Idempotent-Replayed: true`.
    Acp,
    /// The Universal Commerce Protocol: bodies are compared by [`FingerprintMode::Raw`], a request
    /// is refused with 503 while the store is unavailable, and responses are kept for at least 24
    /// hours.
    Ucp,
    /// The Ad Context Protocol: bodies are compared by [`FingerprintMode::JsonSemantic`], because the
    /// canonical form of RFC 8785 writes 1.0 as 1. Problems have the protocol's codes, only successful responses are
    /// stored, and an expired key is refused.
    Adcp,
    /// The REST catalog of Apache Iceberg: a key is optional, and must be a UUID v7.
    Iceberg,
}

/// The codes of a protocol, which its clients read in the `code` of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Codes {
    /// The request has no key.
    pub(crate) missing: Option<&'static str>,
    /// The key was used for a different request.
    pub(crate) mismatch: Option<&'static str>,
    /// The first request with the key is still running.
    pub(crate) in_progress: Option<&'static str>,
    /// The response is no longer kept.
    pub(crate) expired: Option<&'static str>,
}

impl Codes {
    /// Only Hapax's own codes.
    const OWN: Self = Self {
        missing: None,
        mismatch: None,
        in_progress: None,
        expired: None,
    };
    const ACP: Self = Self {
        missing: Some("idempotency_key_required"),
        mismatch: Some("idempotency_conflict"),
        in_progress: Some("idempotency_in_flight"),
        expired: None,
    };
    const ADCP: Self = Self {
        missing: None,
        mismatch: Some("IDEMPOTENCY_CONFLICT"),
        in_progress: Some("IDEMPOTENCY_IN_FLIGHT"),
        expired: Some("IDEMPOTENCY_EXPIRED"),
    };
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 7] = [
        Self::Hapax,
        Self::Ietf,
        Self::Stripe,
        Self::Acp,
        Self::Ucp,
        Self::Adcp,
        Self::Iceberg,
    ];

    /// The name in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hapax => "hapax",
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
            Self::Acp => "acp",
            Self::Ucp => "ucp",
            Self::Adcp => "adcp",
            Self::Iceberg => "iceberg",
        }
    }

    /// The mode of the fingerprint, unless the service sets another one.
    pub const fn fingerprint(self) -> FingerprintMode {
        match self {
            Self::Acp | Self::Adcp => FingerprintMode::JsonSemantic,
            Self::Ucp => FingerprintMode::Raw,
            Self::Hapax | Self::Ietf | Self::Stripe | Self::Iceberg => FingerprintMode::Json,
        }
    }

    /// Returns the status of a mismatch.
    pub(crate) const fn mismatch(self) -> StatusCode {
        match self {
            Self::Hapax | Self::Ucp | Self::Adcp | Self::Iceberg => StatusCode::CONFLICT,
            Self::Ietf | Self::Acp => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stripe => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the codes that replace Hapax's own in problems.
    pub(crate) const fn codes(self) -> Codes {
        match self {
            Self::Acp => Codes::ACP,
            Self::Adcp => Codes::ADCP,
            Self::Hapax | Self::Ietf | Self::Stripe | Self::Ucp | Self::Iceberg => Codes::OWN,
        }
    }

    /// Whether a request without a key is refused, even if its operation accepts it.
    pub(crate) fn requires_key(self, method: &Method) -> bool {
        self == Self::Acp && method == Method::POST
    }

    /// Whether a request without a key runs unprotected, unless the operation says otherwise.
    pub(crate) const fn is_key_optional(self) -> bool {
        matches!(self, Self::Iceberg)
    }

    /// Whether keys must be UUIDs of version 7.
    pub(crate) const fn needs_uuid_v7(self) -> bool {
        matches!(self, Self::Iceberg)
    }

    /// Returns the shortest retention.
    pub(crate) const fn retention_min(self) -> Duration {
        match self {
            Self::Acp | Self::Ucp => DAY,
            Self::Hapax | Self::Ietf | Self::Stripe | Self::Adcp | Self::Iceberg => Duration::ZERO,
        }
    }

    /// Whether a failure always releases its key.
    pub(crate) const fn releases_failures(self) -> bool {
        matches!(self, Self::Acp | Self::Adcp)
    }

    /// Whether an error is never stored, not even a refusal: the retry is evaluated again.
    pub(crate) const fn stores_successes_only(self) -> bool {
        matches!(self, Self::Adcp)
    }

    /// Whether a request is always refused while the store is unavailable.
    pub(crate) const fn fails_closed(self) -> bool {
        matches!(self, Self::Ucp)
    }

    /// Whether an expired key is always refused.
    pub(crate) const fn refuses_expired(self) -> bool {
        matches!(self, Self::Adcp)
    }

    /// Whether a replay has the header `Idempotent-Replayed`.
    pub(crate) const fn marks_replays(self) -> bool {
        matches!(self, Self::Stripe | Self::Acp)
    }

    /// Whether the problem of a key in progress has the member `retry_after`.
    pub(crate) const fn says_retry_after(self) -> bool {
        matches!(self, Self::Adcp)
    }
}

/// Whether the text is a UUID of version 7, in upper or lower case (RFC 9562).
pub(crate) fn is_uuid_v7(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        14 => byte == b'7',
        19 => matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_of_version_7_is_told_from_others() {
        for uuid in [
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "017F22E2-79B0-7CC3-B8C4-DC0C0C07398F",
        ] {
            assert!(is_uuid_v7(uuid), "{uuid}");
        }
        for other in [
            "",
            "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f0",
            "017f22e279b07cc398c4dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
            "017f22e2079b0-7cc3-98c4-dc0c0c07398f",
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        ] {
            assert!(!is_uuid_v7(other), "{other}");
        }
    }

    #[test]
    fn names_and_versions_are_unique() {
        let mut names: Vec<_> = Profile::ALL.iter().map(|it| it.as_str()).collect();
        names.extend(FingerprintMode::ALL.iter().map(|it| it.as_str()));
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let mut versions = FingerprintMode::ALL.map(FingerprintMode::version);
        versions.sort_unstable();
        assert_eq!(versions, [1, 2, 3]);
    }

    #[test]
    fn the_version_of_the_default_mode_is_that_of_stored_keys() {
        assert_eq!(FingerprintMode::default().version(), 1);
        assert_eq!(Profile::default().fingerprint(), FingerprintMode::Json);
    }
}
