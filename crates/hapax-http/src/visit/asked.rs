//! What a request asks: its key, whose it is, its fingerprint, its time.

use std::borrow::Cow;

use axum::{body::Body, extract::OriginalUri, response::Response};
use hapax::{
    idempotency::OnStoreError,
    key::{DERIVED_PREFIX, Fingerprint, FingerprintBuilder, IdempotencyKey, Operation, Tenant},
    seeded::{self, Bug},
    store::Keys,
};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE},
    request::Parts,
};
use http_body::Body as _;
use tokio::time::{Instant, timeout_at};

use super::held::unclaimed;
use crate::{
    body::{self, BodyHash, Kept},
    content::media_type,
    derived::{self, Derived, View},
    header::{self, IDEMPOTENCY_KEY, echo},
    operation::{Act, MediaType, Policy},
    phased::Handover,
    problem::{self, KEY_INVALID, KEY_MISSING, Problem, TIMEOUT},
    request_id::RequestId,
};

/// The version of the fingerprint's format: a change makes every stored key a mismatch.
const FINGERPRINT_VERSION: u8 = 1;
/// The request headers that take part in the fingerprint where they are sent: under another
/// condition it is another request.
pub(crate) const CONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

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
        let sent = sent(parts).map_err(|problem| Refusal { problem, key: None })?;
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
        check_media_type(&act.terms.media_types, &parts.headers, &body)?;
        let (bounds, room) = (act.terms.bounds, act.idempotency.room());
        let reading = body::read(body, &parts.headers, bounds, room);
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
        let hashing = kept.hash(raw, &parts.headers, &folded, room);
        let hash = match deadline {
            None => hashing.await?,
            Some(deadline) => {
                let hashing = Box::pin(timeout_at(deadline, hashing));
                hashing.await.map_err(|_| late())??
            }
        };
        let key = match sent {
            Some(key) => Some(key),
            None => Box::pin(made(act, tenant, derived.as_ref(), deadline)).await?,
        };
        Ok(Self {
            tenant,
            key,
            fingerprint: fingerprint(&act.operation, parts, &hash),
            kept,
            deadline,
        })
    }
}

/// Refuses a body of a type that the operation does not take, before any of it is read.
fn check_media_type(taken: &[MediaType], headers: &HeaderMap, body: &Body) -> Result<(), Problem> {
    let sent = headers.get(CONTENT_TYPE);
    let is_without = sent.is_none() && body.size_hint().exact() == Some(0);
    let sent = sent
        .map(|value| media_type(value.as_bytes()))
        .unwrap_or_default();
    let is_sent = |it: &MediaType| it.as_bytes().eq_ignore_ascii_case(sent);
    if taken.is_empty() || is_without || taken.iter().any(is_sent) {
        return Ok(());
    }
    let detail = format!("this operation takes {}", taken.join(", "));
    Err(Problem::new(problem::CONTENT_TYPE).detail(detail))
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

/// The key of a request that came without one; `None` where the request runs without.
async fn made<'a, K: Keys>(
    act: &Act<K>,
    tenant: &Tenant,
    derived: Option<&Derived>,
    deadline: Option<Instant>,
) -> Result<Option<Cow<'a, str>>, Problem> {
    let settings = act.idempotency.settings();
    let derived = match act.terms.policy {
        Policy::Required | Policy::Optional => return Ok(None),
        Policy::Derived(_) => derived,
        Policy::Issued => {
            let key = IdempotencyKey::mint(&settings.random);
            return Ok(Some(Cow::Owned(key.as_str().to_owned())));
        }
    };
    let Some(derived) = derived else {
        return Ok(None);
    };
    let reading = act.idempotency.derivation_secret();
    let secret = match deadline {
        None => reading.await,
        Some(deadline) => timeout_at(deadline, reading).await.map_err(|_| late())?,
    };
    match secret {
        Ok(secret) => Ok(Some(derived.key(secret, tenant, &act.operation))),
        // Without the secret there is no key, and without a key it runs unprotected.
        Err(_) if settings.on_store_error == OnStoreError::Open && act.phasing.is_none() => {
            Ok(None)
        }
        Err(error) => Err(unclaimed(error)),
    }
}

/// The key that the client sent. The keys that are derived here are not for clients to send: who
/// sent one could take the key of somebody else's request.
fn sent(parts: &Parts) -> Result<Option<Cow<'_, str>>, Problem> {
    let key = header::key(&parts.headers)?;
    let is_derived = key
        .as_deref()
        .is_some_and(|it| it.starts_with(DERIVED_PREFIX));
    // A completer resumes a request under the key that was derived for it.
    if is_derived && parts.extensions.get::<Handover>().is_none() {
        return Err(Problem::new(KEY_INVALID).detail(
            "keys that begin with \"derived:\" are made by the service; send none, or one of your \
             own making",
        ));
    }
    Ok(key)
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
    let built = FingerprintBuilder::new(FINGERPRINT_VERSION)
        .part(operation.as_str().as_bytes())
        .part(uri.path().as_bytes())
        .part(uri.query().unwrap_or_default().as_bytes())
        .part(content_type)
        .part(body);
    with_conditions(built, &parts.headers).finish()
}

/// Adds the conditional headers that were sent, each as its name and its value.
///
/// A request without any hashes as it always has: keys that were stored before still replay.
fn with_conditions(built: FingerprintBuilder, headers: &HeaderMap) -> FingerprintBuilder {
    CONDITIONS.iter().fold(built, |built, name| {
        let values: Vec<&[u8]> = headers
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes().trim_ascii())
            .collect();
        if values.is_empty() {
            return built;
        }
        // A list in several lines is the same list in one.
        built
            .part(name.as_str().as_bytes())
            .part(&values.join(&b", "[..]))
    })
}

fn late() -> Problem {
    Problem::new(TIMEOUT).detail("the client's time ran out while its body was read")
}
