//! What a request asks: its key, whose it is, its fingerprint, its time.

use std::borrow::Cow;

use axum::{body::Body, extract::OriginalUri, response::Response};
use hapax::{
    key::{Fingerprint, FingerprintBuilder, IdempotencyKey, Operation, Tenant},
    seeded::{self, Bug},
    store::Keys,
};
use http::{HeaderValue, header::CONTENT_TYPE, request::Parts};
use tokio::time::{Instant, timeout_at};

use crate::{
    body::{self, BodyHash, Kept},
    content::media_type,
    derived::{self, Derived, View},
    header::{self, IDEMPOTENCY_KEY, echo},
    operation::{Act, Policy},
    problem::{self, KEY_MISSING, Problem, TIMEOUT},
    request_id::RequestId,
};

/// The version of the fingerprint's format: a change makes every stored key a mismatch.
const FINGERPRINT_VERSION: u8 = 1;

/// A request, read to its end.
pub(super) struct Asked<'a> {
    pub(super) tenant: &'a Tenant,
    /// `None` where the operation runs unprotected without one.
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) fingerprint: Fingerprint,
    pub(super) kept: Kept,
    pub(super) deadline: Option<Instant>,
}

/// Why a request goes no further.
pub(super) struct Refusal {
    problem: Problem,
    key: Option<HeaderValue>,
}

impl Refusal {
    /// The answer, with the key where it was parsed.
    pub(super) fn into_response(self, id: &RequestId) -> Response {
        let mut response = problem::write_out(&self.problem, id);
        if let Some(key) = self.key {
            response.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        response
    }
}

impl<'a> Asked<'a> {
    /// Reads a request; nothing has any effect before this is done.
    pub(super) async fn read<K: Keys>(
        act: &'a Act<K>,
        parts: &'a Parts,
        body: Body,
    ) -> Result<Self, Refusal> {
        let sent = header::key(&parts.headers).map_err(|problem| Refusal { problem, key: None })?;
        let parsed = sent.clone();
        Self::read_under(act, parts, body, sent)
            .await
            .map_err(|problem| {
                let key = parsed.and_then(|key| IdempotencyKey::new(&*key).ok());
                let key = key.as_ref().map(echo);
                Refusal { problem, key }
            })
    }

    async fn read_under<K: Keys>(
        act: &'a Act<K>,
        parts: &'a Parts,
        body: Body,
        sent: Option<Cow<'a, str>>,
    ) -> Result<Self, Problem> {
        let budget = header::budget(&parts.headers)?;
        if sent.is_none() && needs_key(act) {
            return Err(Problem::new(KEY_MISSING).detail(
                "send a key of your own making, one per intent, and repeat it on a retry",
            ));
        }
        let tenant = tenant(act, parts)?;
        let deadline = budget.map(|budget| Instant::now() + budget);
        let reading = body::read(body, &parts.headers, act.terms.body_max);
        let (mut kept, raw) = match deadline {
            None => reading.await?,
            // Boxed, as all that is rare: the future of a replay is copied, and stays small.
            Some(deadline) => {
                let reading = Box::pin(timeout_at(deadline, reading));
                reading.await.map_err(|_| late())??
            }
        };
        let derived = derive(act, parts, &kept)?;
        let folded = derived.as_ref().map(Derived::folded).unwrap_or_default();
        let hash = kept.hash(raw, &parts.headers, &folded).await?;
        let key = sent.or_else(|| made(act, derived.as_ref()));
        Ok(Self {
            tenant,
            key,
            fingerprint: fingerprint(&act.operation, parts, &hash),
            kept,
            deadline,
        })
    }
}

/// Whether a request without a key is refused: phases have nothing to stand on without one.
fn needs_key<K: Keys>(act: &Act<K>) -> bool {
    match act.terms.policy {
        Policy::Required => true,
        Policy::Optional => act.phasing.is_some(),
        Policy::Issued | Policy::Derived(_) => false,
    }
}

pub(super) fn tenant<'a, K: Keys>(
    act: &'a Act<K>,
    parts: &'a Parts,
) -> Result<&'a Tenant, Problem> {
    let placed = parts.extensions.get::<Tenant>();
    let tenant = placed.or(act.idempotency.settings().tenant.as_ref());
    tenant.ok_or_else(|| {
        let why = "no tenant was placed on the request: authentication must put a \
                   hapax::key::Tenant in its extensions, in front of this layer";
        Problem::internal(why).detail("the service does not know whose request this is")
    })
}

fn derive<K: Keys>(act: &Act<K>, parts: &Parts, kept: &Kept) -> Result<Option<Derived>, Problem> {
    let Policy::Derived(derive) = &act.terms.policy else {
        return Ok(None);
    };
    let derived = derive(&View::new(parts, kept))?;
    derived::check(&derived)?;
    Ok(Some(derived))
}

/// The key of a request that came without one.
fn made<'a, K: Keys>(act: &Act<K>, derived: Option<&Derived>) -> Option<Cow<'a, str>> {
    match act.terms.policy {
        Policy::Required | Policy::Optional => None,
        Policy::Derived(_) => derived.map(Derived::key),
        Policy::Issued => {
            let key = IdempotencyKey::mint(&act.idempotency.settings().random);
            Some(Cow::Owned(key.as_str().to_owned()))
        }
    }
}

fn fingerprint(operation: &Operation, parts: &Parts, body: &BodyHash) -> Fingerprint {
    if seeded::has(Bug::NoFingerprint) {
        return Fingerprint::from_bytes([0; 32]);
    }
    // A nested router strips its prefix, and a prefix may hold a parameter.
    let original = parts.extensions.get::<OriginalUri>();
    let uri = original.map_or(&parts.uri, |original| &original.0);
    let content_type = parts.headers.get(CONTENT_TYPE);
    let content_type = content_type.map_or(&b""[..], |value| media_type(value.as_bytes()));
    let lower;
    let content_type = if content_type.iter().any(u8::is_ascii_uppercase) {
        lower = content_type.to_ascii_lowercase();
        &lower
    } else {
        content_type
    };
    FingerprintBuilder::new(FINGERPRINT_VERSION)
        .part(operation.as_str().as_bytes())
        .part(uri.path().as_bytes())
        .part(uri.query().unwrap_or_default().as_bytes())
        .part(content_type)
        .part(body)
        .finish()
}

fn late() -> Problem {
    Problem::new(TIMEOUT).detail("the client's time ran out while its body was read")
}
