//! Profiles: what each protocol says about statuses, codes and equality.
//!
//! A profile changes names and statuses. Where a text is silent, the rules here are those of the
//! profile `hapax`. The promise is the same everywhere: one effect for one key, and one response.

use std::time::Duration;

/// A text that the server keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// The contract of this project
    Hapax,
    /// The IETF draft, version 07
    Ietf,
    /// Stripe's published behaviour
    Stripe,
    /// Agentic Commerce Protocol
    Acp,
    /// Universal Commerce Protocol
    Ucp,
    /// Ad Context Protocol
    Adcp,
    /// Apache Iceberg's REST catalogue
    Iceberg,
}

/// When two JSON bodies are the same payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// The same bytes.
    Raw,
    /// The same values, with any white space and order of members; numbers as sent.
    Canonical,
    /// The same, with numbers by value: 1 = 1.0 = 1e0, at any size.
    ByValue,
}

/// The form of a key, and whether one is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPolicy {
    /// A request without a key is refused.
    Required,
    /// A request without a key runs unprotected.
    Optional,
    /// Optional; a key that is sent is a UUID of version 7.
    OptionalUuidV7,
}

/// The codes of the refusals, which a client reads in `code`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codes {
    pub(crate) missing: &'static str,
    pub(crate) invalid: &'static str,
    pub(crate) mismatch: &'static str,
    pub(crate) in_flight: &'static str,
    pub(crate) expired: &'static str,
}

/// The rules of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) key: KeyPolicy,
    pub(crate) equality: Equality,
    /// Status of a payload that fails validation.
    pub(crate) validation_status: u16,
    pub(crate) mismatch_status: u16,
    /// Status of an expired key; `None` if the request runs as new.
    pub(crate) expired_status: Option<u16>,
    pub(crate) keeps_server_errors: bool,
    /// Whether refusals by the rules of the business are stored.
    pub(crate) keeps_refusals: bool,
    /// How long a duplicate waits for the first request.
    pub(crate) wait: Duration,
    pub(crate) codes: Codes,
}

const HAPAX: Codes = Codes {
    missing: "VALIDATION.idempotency_key.missing",
    invalid: "VALIDATION.idempotency_key.invalid",
    mismatch: "CONFLICT.idempotency.payload_mismatch",
    in_flight: "CONFLICT.idempotency.in_progress",
    expired: "CONFLICT.idempotency.expired",
};

const LOWER_CASE: Codes = Codes {
    missing: "idempotency_key_required",
    invalid: "idempotency_key_invalid",
    mismatch: "idempotency_conflict",
    in_flight: "idempotency_in_flight",
    expired: "idempotency_expired",
};

const UPPER_CASE: Codes = Codes {
    missing: "IDEMPOTENCY_KEY_REQUIRED",
    invalid: "IDEMPOTENCY_KEY_INVALID",
    mismatch: "IDEMPOTENCY_CONFLICT",
    in_flight: "IDEMPOTENCY_IN_FLIGHT",
    expired: "IDEMPOTENCY_EXPIRED",
};

const BASE: Rules = Rules {
    key: KeyPolicy::Required,
    equality: Equality::Canonical,
    validation_status: 422,
    mismatch_status: 422,
    expired_status: None,
    keeps_server_errors: false,
    keeps_refusals: true,
    wait: Duration::ZERO,
    codes: LOWER_CASE,
};

impl Profile {
    /// The rules of the profile.
    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Hapax => Rules {
                validation_status: 400,
                mismatch_status: 409,
                wait: Duration::from_secs(1),
                codes: HAPAX,
                ..BASE
            },
            Self::Ietf => BASE,
            Self::Stripe => Rules {
                key: KeyPolicy::Optional,
                equality: Equality::ByValue,
                validation_status: 400,
                mismatch_status: 400,
                keeps_server_errors: true,
                ..BASE
            },
            Self::Acp => Rules {
                equality: Equality::ByValue,
                ..BASE
            },
            Self::Ucp => Rules {
                equality: Equality::Raw,
                mismatch_status: 409,
                ..BASE
            },
            // RFC 8785 writes 1.0 as 1. It reads numbers as doubles, too, so that large integers
            // would replay each other; here they differ, which is safe.
            Self::Adcp => Rules {
                equality: Equality::ByValue,
                mismatch_status: 409,
                expired_status: Some(410),
                codes: UPPER_CASE,
                // Only successful responses are stored.
                keeps_refusals: false,
                ..BASE
            },
            Self::Iceberg => Rules {
                key: KeyPolicy::OptionalUuidV7,
                validation_status: 400,
                ..BASE
            },
        }
    }
}
