//! The rules of each profile, as its source states them.
//!
//! `None` means that the source says nothing, so the checks report what the server does and do not
//! judge it. An empty list of statuses means that the source demands a refusal and states no status:
//! any 4xx status is accepted. The pages below `docs/reference/profiles` say the same in words.

use crate::profile::{Equality, InFlight, KeyForm, Missing, Profile, Refusal, Source};

/// A refusal with one of these statuses, or any 4xx status if there is none.
const fn refusal(statuses: &'static [u16], code: Option<&'static str>) -> Refusal {
    Refusal { statuses, code }
}

/// The header fields that mark a replay or echo the key, under all names that are in use: a server
/// may send those of another profile too.
const MARKERS: &[&str] = &[
    "idempotency-key",
    "idempotency-status",
    "idempotent-replayed",
];

/// All profiles, in the order of `--list`.
pub(crate) const PROFILES: &[Profile] = &[HAPAX, IETF, STRIPE, ACP, UCP, ADCP, ICEBERG];

const HAPAX: Profile = Profile {
    name: "hapax",
    title: "Hapax HTTP contract",
    source: Source {
        title: "Hapax: HTTP contract",
        url: "https://github.com/hapax-rs/hapax/blob/main/docs/reference/http.md",
        version: "0.1",
    },
    key: KeyForm::Text,
    missing: Missing::PerOperation(refusal(&[400], Some("VALIDATION.idempotency_key.missing"))),
    invalid: Some(refusal(&[400], Some("VALIDATION.idempotency_key.invalid"))),
    quoted_is_bare: Some(true),
    equality: Equality::CanonicalJson,
    mismatch: refusal(&[409], Some("CONFLICT.idempotency.payload_mismatch")),
    mismatch_retry_after: Some(false),
    mismatch_while_running: Some(true),
    in_flight: Some(InFlight {
        refusal: refusal(&[409], Some("CONFLICT.idempotency.in_progress")),
        retry_after: true,
    }),
    keeps_server_errors: Some(false),
    keeps_refusals: Some(true),
    keeps_caller_errors: Some(false),
    replays_headers: Some(true),
    replays_cookies_and_date: Some(false),
    expires: Some(true),
    compares_whole_requests: Some(true),
    scoped_by_principal: Some(true),
    scoped_by_operation: Some(true),
    replay_member: None,
    markers: MARKERS,
};

const IETF: Profile = Profile {
    name: "ietf",
    title: "The Idempotency-Key HTTP Header Field",
    source: Source {
        title: "draft-ietf-httpapi-idempotency-key-header-07",
        url: "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
        version: "draft 07, October 2025, expired in April 2026",
    },
    key: KeyForm::Quoted,
    missing: Missing::PerOperation(refusal(&[400], None)),
    // The text requires a quoted string, and does not say what happens to other values.
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Unstated,
    mismatch: refusal(&[422], None),
    mismatch_retry_after: None,
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], None),
        retry_after: false,
    }),
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: None,
    compares_whole_requests: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    replay_member: None,
    markers: MARKERS,
};

const STRIPE: Profile = Profile {
    name: "stripe",
    title: "Stripe API: idempotent requests",
    source: Source {
        title: "Stripe API reference: Idempotent requests",
        url: "https://docs.stripe.com/api/idempotent_requests",
        version: "read in November 2026",
    },
    key: KeyForm::Text,
    // A key is never demanded. An API in the style of Stripe may still demand one.
    missing: Missing::PerOperation(refusal(&[], None)),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Unstated,
    // The text names the type of the error and no status. Stripe's own clients read that type in
    // 400 and 404 only.
    mismatch: refusal(&[400], None),
    mismatch_retry_after: None,
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], None),
        retry_after: false,
    }),
    keeps_server_errors: Some(true),
    keeps_refusals: Some(true),
    keeps_caller_errors: None,
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: None,
    compares_whole_requests: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    replay_member: None,
    markers: MARKERS,
};

const ACP: Profile = Profile {
    name: "acp",
    title: "Agentic Commerce Protocol",
    source: Source {
        title: "Agentic Commerce Protocol: idempotency",
        url: "https://github.com/agentic-commerce-protocol/agentic-commerce-protocol",
        version: "read in November 2026",
    },
    key: KeyForm::Text,
    missing: Missing::Refused(refusal(&[400], Some("idempotency_key_required"))),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::JsonByValue,
    mismatch: refusal(&[422], Some("idempotency_conflict")),
    mismatch_retry_after: None,
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], Some("idempotency_in_flight")),
        retry_after: true,
    }),
    keeps_server_errors: Some(false),
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: None,
    compares_whole_requests: None,
    scoped_by_principal: Some(true),
    scoped_by_operation: Some(true),
    replay_member: None,
    markers: MARKERS,
};

const UCP: Profile = Profile {
    name: "ucp",
    title: "Universal Commerce Protocol",
    source: Source {
        title: "Universal Commerce Protocol: checkout REST binding, idempotency",
        url: "https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/shopping/checkout/rest.md",
        version: "read in November 2026",
    },
    key: KeyForm::Uuid,
    // The OpenAPI description requires the header, and the text says that it should be supported.
    missing: Missing::PerOperation(refusal(&[], None)),
    invalid: None,
    quoted_is_bare: None,
    // Servers must compare SHA-256 hashes of the bodies.
    equality: Equality::Raw,
    mismatch: refusal(&[409], None),
    mismatch_retry_after: None,
    mismatch_while_running: None,
    in_flight: None,
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: None,
    compares_whole_requests: None,
    scoped_by_principal: Some(true),
    scoped_by_operation: Some(true),
    replay_member: None,
    markers: MARKERS,
};

const ADCP: Profile = Profile {
    name: "adcp",
    title: "Ad Context Protocol",
    source: Source {
        title: "Ad Context Protocol: idempotency",
        url: "https://docs.adcontextprotocol.org/docs/building/by-layer/L1/security",
        version: "read in November 2026",
    },
    // In the text the key is a member of the request. The probe sends it as a header field.
    key: KeyForm::Text,
    missing: Missing::Refused(refusal(&[], None)),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Rfc8785,
    // The text has codes and states no HTTP status.
    mismatch: refusal(&[], Some("IDEMPOTENCY_CONFLICT")),
    mismatch_retry_after: None,
    mismatch_while_running: Some(true),
    in_flight: Some(InFlight {
        refusal: refusal(&[], Some("IDEMPOTENCY_IN_FLIGHT")),
        // The wait is in the member `retry_after` of the body.
        retry_after: false,
    }),
    // Only successful responses are stored.
    keeps_server_errors: Some(false),
    keeps_refusals: Some(false),
    keeps_caller_errors: Some(false),
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: Some(true),
    compares_whole_requests: None,
    scoped_by_principal: Some(true),
    scoped_by_operation: None,
    replay_member: Some("replayed"),
    markers: MARKERS,
};

const ICEBERG: Profile = Profile {
    name: "iceberg",
    title: "Apache Iceberg REST catalog",
    source: Source {
        title: "Apache Iceberg: REST catalog OpenAPI description, Idempotency-Key",
        url: "https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml",
        version: "read in November 2026",
    },
    key: KeyForm::UuidV7,
    missing: Missing::Optional,
    // The text requires a UUID of version 7, and states no status for other keys.
    invalid: Some(refusal(&[], None)),
    quoted_is_bare: None,
    // A key must not be used for another operation. The text does not say how that is refused.
    equality: Equality::Unstated,
    mismatch: refusal(&[], None),
    mismatch_retry_after: None,
    mismatch_while_running: None,
    in_flight: None,
    keeps_server_errors: Some(false),
    keeps_refusals: Some(true),
    keeps_caller_errors: None,
    replays_headers: None,
    replays_cookies_and_date: None,
    expires: None,
    compares_whole_requests: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    replay_member: None,
    markers: MARKERS,
};
