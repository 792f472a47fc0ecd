//! Unknown outcomes: requests that a gateway has sent to a service without a complete response.
//!
//! The key of such a request stays in progress, and its recovery point is the record of the
//! gateway: its first word is `sent` or `unknown`. A key whose lease has not expired belongs to a
//! gateway that still waits for the response. All others wait for a retry that finds the outcome
//! out, or for a decision of an operator ([`decide_unknown`](super::decide_unknown)).

use serde::Serialize;

use super::{
    Actor, AdminError, KeyAdmin, KeyFilter, KeyState, KeySummary, PAGE_MAX, Page, UnknownReason,
    UnknownRecord,
};
use crate::{clock::Timestamp, key::short_hash};

/// Pages of keys that one page of unknown outcomes reads: most keys in progress have an owner.
const PAGES_MAX: usize = 10;

/// A request whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnknownOutcome {
    /// Its key.
    #[serde(flatten)]
    pub key: KeySummary,
    /// The record of the gateway.
    #[serde(flatten)]
    pub record: UnknownRecord,
    /// Whether it can be decided: the lease of its key has expired. If it has not, a gateway still
    /// waits for the response.
    pub is_waiting: bool,
    /// The version of the record. It changes when the request is sent again, and stays the same
    /// when a retry is refused.
    pub version: String,
}

impl UnknownOutcome {
    /// The unknown outcome of a key at a time; `None` if the key is not in progress, or was not
    /// written by a gateway.
    pub fn of(key: KeySummary, now: Timestamp) -> Option<Self> {
        let version = record_version(&key)?;
        let record = key.recovery_point.as_deref()?.parse().ok()?;
        Some(Self {
            is_waiting: key.lease_until.is_none_or(|until| until <= now),
            record,
            version,
            key,
        })
    }
}

/// The version of the record of a key in progress; `None` if it has none.
pub(super) fn record_version(key: &KeySummary) -> Option<String> {
    let point = key.recovery_point.as_deref()?;
    let is_record = key.state == KeyState::InProgress && point.parse::<UnknownRecord>().is_ok();
    is_record.then(|| format!("{}.{}", key.created_at.as_millis(), short_hash(point)))
}

/// A filter for unknown outcomes. A field that is absent matches all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFilter {
    /// The keys. Its state is ignored: keys with an unknown outcome are in progress.
    pub keys: KeyFilter,
    /// The reason.
    pub reason: Option<UnknownReason>,
    /// The beginning of the upstream or of its instance.
    pub upstream: Option<String>,
    /// Whether it waits for a decision.
    pub is_waiting: Option<bool>,
}

impl UnknownFilter {
    fn matches(&self, it: &UnknownOutcome) -> bool {
        let upstream = self.upstream.as_deref();
        self.reason.is_none_or(|reason| reason == it.record.reason)
            && upstream.is_none_or(|beginning| it.record.upstream.starts_with(beginning))
            && self.is_waiting.is_none_or(|is| is == it.is_waiting)
    }
}

/// The number of requests that wait for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownWaiting {
    /// How many were found.
    pub number: u64,
    /// Whether these are all of them: the search is bounded.
    pub is_complete: bool,
    /// When the oldest of them was sent.
    pub oldest: Option<Timestamp>,
}

/// Lists the unknown outcomes that match a filter, the newest claim first. A page may be empty and
/// still have a next one. `now` decides whether a lease has expired.
///
/// # Errors
/// Fails like [`KeyAdmin::keys`].
pub async fn unknown_outcomes<A: KeyAdmin + ?Sized>(
    admin: &A,
    actor: &Actor,
    filter: &UnknownFilter,
    (before, limit): (Option<&str>, usize),
    now: Timestamp,
) -> Result<Page<UnknownOutcome>, AdminError> {
    let keys = in_progress(&filter.keys);
    let mut before = before.map(str::to_owned);
    for _ in 0..PAGES_MAX {
        let page = admin.keys(actor, &keys, before.as_deref(), limit).await?;
        let found = page.items.into_iter();
        let found = found.filter_map(|key| UnknownOutcome::of(key, now));
        let items: Vec<_> = found.filter(|it| filter.matches(it)).collect();
        before = page.next;
        if !items.is_empty() || before.is_none() {
            return Ok(Page {
                items,
                next: before,
            });
        }
    }
    Ok(Page {
        items: Vec::new(),
        next: before,
    })
}

/// Reads one unknown outcome, with the size of the request that is kept for a completer.
///
/// # Errors
/// Fails like [`KeyAdmin::key`]; `NotFound` if the key has no unknown outcome.
pub async fn unknown_outcome<A: KeyAdmin + ?Sized>(
    admin: &A,
    actor: &Actor,
    tenant: Option<&str>,
    operation: &str,
    key: &str,
) -> Result<(UnknownOutcome, Option<u64>), AdminError> {
    let found = admin.key(actor, tenant, operation, key).await?;
    let is_lapsed = found.is_lapsed;
    let it = UnknownOutcome::of(found.summary, Timestamp::default());
    let it = it.ok_or_else(|| {
        let operation = operation.escape_debug();
        AdminError::not_found(format!("unknown outcome of this key for {operation}"))
    })?;
    // The store's clock has decided about the lease.
    let it = UnknownOutcome {
        is_waiting: is_lapsed,
        ..it
    };
    Ok((it, found.request_bytes))
}

/// Counts the requests that wait for a decision, up to a bound of 10,000 keys in progress.
///
/// # Errors
/// Fails like [`KeyAdmin::keys`].
pub async fn waiting_unknown<A: KeyAdmin + ?Sized>(
    admin: &A,
    actor: &Actor,
    now: Timestamp,
) -> Result<UnknownWaiting, AdminError> {
    let keys = in_progress(&KeyFilter::default());
    let (mut waiting, mut before) = (UnknownWaiting::default(), None::<String>);
    for _ in 0..PAGES_MAX {
        let page = admin.keys(actor, &keys, before.as_deref(), PAGE_MAX);
        let page = page.await?;
        let found = page.items.into_iter();
        let found = found.filter_map(|key| UnknownOutcome::of(key, now));
        for it in found.filter(|it| it.is_waiting) {
            waiting.number += 1;
            let sent_at = it.record.sent_at;
            waiting.oldest = Some(waiting.oldest.map_or(sent_at, |oldest| oldest.min(sent_at)));
        }
        before = page.next;
        if before.is_none() {
            waiting.is_complete = true;
            break;
        }
    }
    Ok(waiting)
}

fn in_progress(keys: &KeyFilter) -> KeyFilter {
    KeyFilter {
        state: Some(KeyState::InProgress),
        ..keys.clone()
    }
}
