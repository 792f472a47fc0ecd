//! The profiles. Each rule is a statement of the source, or `None` where the source is silent.

use crate::profile::{Equality, InFlight, KeyForm, Missing, Profile, Refusal, Source};

const fn refusal(statuses: &'static [u16], code: Option<&'static str>) -> Refusal {
    Refusal { statuses, code }
}

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
    mismatch_while_running: Some(true),
    in_flight: Some(InFlight {
        refusal: refusal(&[409], Some("CONFLICT.idempotency.in_progress")),
        retry_after: true,
    }),
    keeps_server_errors: Some(false),
    keeps_refusals: Some(true),
    keeps_caller_errors: Some(false),
    replays_headers: Some(true),
    scoped_by_principal: Some(true),
    scoped_by_operation: Some(true),
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
};

const IETF: Profile = Profile {
    name: "ietf",
    title: "The Idempotency-Key HTTP Header Field",
    source: Source {
        title: "draft-ietf-httpapi-idempotency-key-header-07",
        url: "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
        version: "draft 07, 15 October 2025",
    },
    key: KeyForm::Quoted,
    missing: Missing::PerOperation(refusal(&[400], None)),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Unstated,
    mismatch: refusal(&[422], None),
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], None),
        retry_after: false,
    }),
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
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
    missing: Missing::Optional,
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Unstated,
    mismatch: refusal(&[400], None),
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], None),
        retry_after: false,
    }),
    keeps_server_errors: Some(true),
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
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
    mismatch_while_running: None,
    in_flight: Some(InFlight {
        refusal: refusal(&[409], Some("idempotency_in_flight")),
        retry_after: true,
    }),
    keeps_server_errors: Some(false),
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
};

const UCP: Profile = Profile {
    name: "ucp",
    title: "Universal Commerce Protocol",
    source: Source {
        title: "Universal Commerce Protocol: checkout REST binding, idempotency",
        url: "https://ucp.dev/specification/checkout-rest/",
        version: "read in November 2026",
    },
    key: KeyForm::Text,
    missing: Missing::Refused(refusal(&[400], None)),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Raw,
    mismatch: refusal(&[409], None),
    mismatch_while_running: None,
    in_flight: None,
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
};

const ADCP: Profile = Profile {
    name: "adcp",
    title: "Ad Context Protocol",
    source: Source {
        title: "Ad Context Protocol: idempotency",
        url: "https://docs.adcontextprotocol.org/docs/building/implementation/security",
        version: "read in November 2026",
    },
    key: KeyForm::Text,
    missing: Missing::Refused(refusal(&[], None)),
    invalid: None,
    quoted_is_bare: None,
    equality: Equality::Rfc8785,
    mismatch: refusal(&[], Some("IDEMPOTENCY_CONFLICT")),
    mismatch_while_running: Some(true),
    in_flight: Some(InFlight {
        refusal: refusal(&[], Some("IDEMPOTENCY_IN_FLIGHT")),
        retry_after: true,
    }),
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
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
    invalid: Some(refusal(&[400], None)),
    quoted_is_bare: None,
    equality: Equality::Unstated,
    mismatch: refusal(&[], None),
    mismatch_while_running: None,
    in_flight: None,
    keeps_server_errors: None,
    keeps_refusals: None,
    keeps_caller_errors: None,
    replays_headers: None,
    scoped_by_principal: None,
    scoped_by_operation: None,
    markers: &[
        "idempotency-key",
        "idempotency-status",
        "idempotent-replayed",
    ],
};
