//! Parsing of a request: its key, its tenant, its fingerprint and its deadline.

use std::borrow::Cow;

use axum::{body::Body, extract::OriginalUri, response::Response};
use hapax::{
    key::{DERIVED_PREFIX, Fingerprint, FingerprintBuilder, IdempotencyKey, Operation, Tenant},
    store::Keys,
};
use http::{
    HeaderMap, HeaderName, Method,
    header::{CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE},
    request::Parts,
};
use http_body::Body as _;
use tokio::time::{Instant, timeout_at};

use super::{claim_guard::claim_problem, unprotected};
use crate::{
    body::{self, BodyHash, Kept},
    content::media_type,
    derived::{self, Derived, View},
    header::{self, IDEMPOTENCY_KEY, echo},
    operation::{KeyPolicy, MediaType, ProtectedOperation},
    phased::Handover,
    problem::{self, BODY_INCOMPLETE, KEY_INVALID, KEY_MISSING, Problem, TIMEOUT},
    profile::{FingerprintMode, is_uuid_v7},
    request_id::RequestId,
};

/// The conditional headers, which are part of the fingerprint if they are sent. With a different
/// condition, it is a different request.
pub(crate) const CONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

/// A parsed request, whose body has been read.
pub(super) struct ParsedRequest<'a> {
    pub(super) tenant: &'a Tenant,
    /// `None` if the request runs without a key.
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) fingerprint: Fingerprint,
    pub(super) kept: Kept,
    pub(super) deadline: Option<Instant>,
}

/// The refusal of a request that could not be parsed.
pub(super) struct Refusal {
    problem: Problem,
    pub(super) key: Option<IdempotencyKey>,
}

impl Refusal {
    /// Creates the refusal of a request whose client has disconnected before its body was read.
    pub(super) fn disconnected(parts: &Parts) -> Self {
        Self::new(
            Problem::new(BODY_INCOMPLETE),
            sent(parts).ok().flatten().as_deref(),
        )
    }

    fn new(problem: Problem, sent: Option<&str>) -> Self {
        let key = sent.and_then(|key| IdempotencyKey::new(key).ok());
        Self { problem, key }
    }

    /// Returns the response, with the key if it was parsed.
    pub(super) fn response(&self, id: &RequestId) -> Response {
        let mut response = problem::write_out(&self.problem, id);
        if let Some(key) = &self.key {
            response.headers_mut().insert(IDEMPOTENCY_KEY, echo(key));
        }
        response
    }

    /// Whether the key could not be derived because the store has failed.
    pub(super) fn is_store_failure(&self) -> bool {
        self.problem.store_error().is_some()
    }
}

impl<'a> ParsedRequest<'a> {
    /// Reads and parses a request. This has no effect in the store.
    pub(super) async fn read<K: Keys>(
        operation: &'a ProtectedOperation<K>,
        parts: &'a Parts,
        body: Body,
    ) -> Result<Self, Refusal> {
        let sent = sent(parts)
            .and_then(|sent| valid(operation, parts, sent))
            .map_err(|problem| Refusal::new(problem, None))?;
        let parsed = sent.clone();
        Self::read_under(operation, parts, body, sent)
            .await
            .map_err(|problem| Refusal::new(problem, parsed.as_deref()))
    }

    async fn read_under<K: Keys>(
        operation: &'a ProtectedOperation<K>,
        parts: &'a Parts,
        body: Body,
        sent: Option<Cow<'a, str>>,
    ) -> Result<Self, Problem> {
        let budget = header::budget(&parts.headers)?;
        if sent.is_none() && needs_key(operation, &parts.method) {
            return Err(Problem::new(KEY_MISSING)
                .shown_as(operation.policy.profile.codes().missing)
                .detail("generate a key for each intent, and send the same key with every retry"));
        }
        let tenant = tenant(operation, parts)?;
        let deadline = budget.map(|budget| Instant::now() + budget);
        check_media_type(&operation.policy.media_types, &parts.headers, &body)?;
        let (bounds, room) = (operation.policy.bounds, operation.idempotency.room());
        let mode = operation.policy.fingerprint;
        let reading = body::read(body, &parts.headers, bounds, mode, room);
        let (kept, raw) = match deadline {
            None => reading.await?,
            // Rare paths are boxed: the future of a replay is moved by copying, and should stay
            // small.
            Some(deadline) => {
                let reading = Box::pin(timeout_at(deadline, reading));
                reading.await.map_err(|_| late())??
            }
        };
        let derived = derive(operation, parts, &kept)?;
        let folded = derived.as_ref().map(Derived::folded).unwrap_or_default();
        let hashing = kept.hash(raw, &parts.headers, &folded, mode, room);
        let hash = match deadline {
            None => hashing.await?,
            Some(deadline) => {
                let hashing = Box::pin(timeout_at(deadline, hashing));
                hashing.await.map_err(|_| late())??
            }
        };
        let key = match sent {
            Some(key) => Some(key),
            None => Box::pin(made(operation, tenant, derived.as_ref(), deadline)).await?,
        };
        Ok(Self {
            tenant,
            key,
            fingerprint: fingerprint(mode, &operation.name, parts, &hash),
            kept,
            deadline,
        })
    }
}

/// Refuses a body whose media type the operation does not accept, before it is read.
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
    let detail = format!("this operation accepts {}", taken.join(", "));
    Err(Problem::new(problem::CONTENT_TYPE).detail(detail))
}

/// Whether a request without a key is refused. A phased operation always requires a key.
fn needs_key<K: Keys>(operation: &ProtectedOperation<K>, method: &Method) -> bool {
    match operation.policy.key_policy {
        _ if operation.policy.profile.requires_key(method) => true,
        KeyPolicy::Required => true,
        KeyPolicy::Optional => operation.phasing.is_some(),
        KeyPolicy::Issued | KeyPolicy::Derived(_) => false,
    }
}

/// Returns the tenant that authentication has set, or that of the settings.
pub(super) fn tenant<'a, K: Keys>(
    operation: &'a ProtectedOperation<K>,
    parts: &'a Parts,
) -> Result<&'a Tenant, Problem> {
    let placed = parts.extensions.get::<Tenant>();
    let tenant = placed.or(operation.idempotency.settings().tenant.as_ref());
    tenant.ok_or_else(|| {
        let why = "the request has no tenant: authentication must put a hapax::key::Tenant in its \
                   extensions before this layer";
        Problem::internal(why).detail("the service has not set the tenant of this request")
    })
}

fn derive<K: Keys>(
    operation: &ProtectedOperation<K>,
    parts: &Parts,
    kept: &Kept,
) -> Result<Option<Derived>, Problem> {
    let KeyPolicy::Derived(derive) = &operation.policy.key_policy else {
        return Ok(None);
    };
    let derived = derive(&View::new(parts, kept))?;
    derived::check(&derived)?;
    Ok(Some(derived))
}

/// Issues or derives the key of a request that was sent without one. Returns `None` if the request
/// runs without a key.
async fn made<'a, K: Keys>(
    operation: &ProtectedOperation<K>,
    tenant: &Tenant,
    derived: Option<&Derived>,
    deadline: Option<Instant>,
) -> Result<Option<Cow<'a, str>>, Problem> {
    let settings = operation.idempotency.settings();
    let derived = match operation.policy.key_policy {
        KeyPolicy::Required | KeyPolicy::Optional => return Ok(None),
        KeyPolicy::Derived(_) => derived,
        KeyPolicy::Issued => {
            let key = settings.mint_key(operation.policy.profile);
            return Ok(Some(Cow::Owned(key.as_str().to_owned())));
        }
    };
    let Some(derived) = derived else {
        return Ok(None);
    };
    let reading = operation.idempotency.derivation_secret();
    let secret = match deadline {
        None => reading.await,
        Some(deadline) => timeout_at(deadline, reading).await.map_err(|_| late())?,
    };
    match secret {
        Ok(secret) => Ok(Some(derived.key(secret, tenant, &operation.name))),
        // Without the secret no key can be derived, so the request runs unprotected.
        Err(error) if operation.fails_open() && operation.phasing.is_none() => {
            unprotected::warn(&operation.name, None, &error);
            Ok(None)
        }
        Err(error) => Err(claim_problem(error)),
    }
}

/// Returns the key that the client sent. A client must not send a derived key, because it could
/// claim the key of another client's request.
fn sent(parts: &Parts) -> Result<Option<Cow<'_, str>>, Problem> {
    let key = header::key(&parts.headers)?;
    let is_derived = key
        .as_deref()
        .is_some_and(|it| it.starts_with(DERIVED_PREFIX));
    // A completer may: it resumes a request with the key that was derived for it.
    if is_derived && parts.extensions.get::<Handover>().is_none() {
        return Err(Problem::new(KEY_INVALID).detail(
            "keys that begin with \"derived:\" are reserved for the service; send no key, or a key \
             that you have generated",
        ));
    }
    Ok(key)
}

/// Refuses a key that the clients of the operation's profile do not send. A completer may resume a
/// request whose key was taken under another profile, or was derived.
fn valid<'a, K: Keys>(
    operation: &ProtectedOperation<K>,
    parts: &Parts,
    sent: Option<Cow<'a, str>>,
) -> Result<Option<Cow<'a, str>>, Problem> {
    let needs_uuid_v7 = operation.policy.profile.needs_uuid_v7();
    let is_other = sent.as_deref().is_some_and(|key| !is_uuid_v7(key));
    if needs_uuid_v7 && is_other && parts.extensions.get::<Handover>().is_none() {
        return Err(Problem::new(KEY_INVALID)
            .detail("the key must be a UUID of version 7, with hyphens and without braces"));
    }
    Ok(sent)
}

fn fingerprint(
    mode: FingerprintMode,
    operation: &Operation,
    parts: &Parts,
    body: &BodyHash,
) -> Fingerprint {
    // A nested router removes its prefix from the URI, but the prefix may contain a parameter.
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
    let built = FingerprintBuilder::new(mode.version())
        .part(operation.as_str().as_bytes())
        .part(uri.path().as_bytes())
        .part(uri.query().unwrap_or_default().as_bytes())
        .part(content_type)
        .part(body);
    with_conditions(built, &parts.headers).finish()
}

/// Adds the conditional headers that were sent, each with its name and its value.
///
/// The fingerprint of a request without them is the same as in older versions, which did not
/// include them. So keys that were stored by older versions still replay.
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
        // A list in several header lines is equal to the same list in one line.
        built
            .part(name.as_str().as_bytes())
            .part(&values.join(&b", "[..]))
    })
}

fn late() -> Problem {
    Problem::new(TIMEOUT).detail("the X-Request-Timeout ran out while the body was read")
}
