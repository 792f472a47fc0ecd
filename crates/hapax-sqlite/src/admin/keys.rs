//! Queries for idempotency keys: lists by a filter, and single keys.
//!
//! Lists start with the newest claim. Keys in progress are found by a partial index, and keys with a
//! prefix by the unique index. With any other filter, a page reads a bounded number of keys.

use std::ops::ControlFlow;

use async_trait::async_trait;
use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Cursor, FoundKey, KeyAdmin, KeyDecision, KeyFilter, KeyRecord, KeyState,
        KeySummary, KeyVersion, NoKeyVersion, PAGE_MAX, Page, StoredKey, check_reason, key_tenant,
        only_key,
    },
    idempotency::StoredResponse,
    key::{IdempotencyKey, Tenant, short_hash},
    store::StoreError,
};
use rusqlite::{Params, Row, params};

use super::{
    decide_key,
    declared::{moment, optional_moment},
    handle::SqliteAdmin,
    purge,
    view::View,
};
use crate::{error::corrupt, query};

/// Keys that a page reads. This takes some tens of milliseconds.
const LOOK: usize = 10_000;
/// Keys that a page reads if they are not stored in order of time, so that each is on another page
/// of the table.
const LOOK_UNDER: usize = 2_000;

#[async_trait]
impl KeyAdmin for SqliteAdmin {
    async fn keys(
        &self,
        actor: &Actor,
        filter: &KeyFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<KeySummary>, AdminError> {
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(Page::last(Vec::new()));
        };
        let limit = limit.clamp(1, PAGE_MAX);
        let from = Cursor::of(before, filter.until)?;
        self.read(move |view| list(view, &find, from, limit)).await
    }

    async fn key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
    ) -> Result<KeyRecord, AdminError> {
        let found = one(self, actor, tenant, Some(operation), key).await?;
        Ok(found.record)
    }

    async fn purge_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
        version: &str,
        reason: &str,
    ) -> Result<(), AdminError> {
        check_reason(reason)?;
        let version = version.parse();
        let wrong = |error: NoKeyVersion| AdminError::invalid("version", error.to_string());
        let key = self.key(actor, tenant, operation, key).await?.summary;
        purge::purge(self, actor, &key, version.map_err(wrong)?, reason).await
    }

    async fn decide_key(&self, actor: &Actor, decision: &KeyDecision) -> Result<(), AdminError> {
        let version = decision.check()?;
        let (tenant, operation) = (decision.tenant.as_deref(), decision.operation.as_str());
        let key = self.key(actor, tenant, operation, &decision.key);
        let key = key.await?.summary;
        decide_key::decide(self, actor, &key, version, decision).await
    }
}

/// Reads the only key that matches.
pub(super) async fn one(
    store: &SqliteAdmin,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<FoundKey, AdminError> {
    let tenant = key_tenant(actor, tenant, operation)?.map(str::to_owned);
    let (key, operation) = (key.to_owned(), operation.map(str::to_owned));
    let find = move |view: &View<'_>| -> Result<FoundKey, AdminError> {
        let params = params![key, operation, tenant];
        let found = view.list(query!("admin/key"), params, |row| Ok(record(row, view)))?;
        let found: Vec<FoundKey> = found.into_iter().collect::<Result<_, _>>()?;
        let operation_of = |it: &FoundKey| it.record.summary.operation.clone();
        only_key(found, operation.as_deref(), operation_of)
    };
    store.read(find).await
}

/// The filter of an actor.
struct Filters {
    operation: Option<String>,
    tenant: Option<String>,
    prefix: Option<String>,
    hash: Option<String>,
    state: Option<KeyState>,
    since: Option<Timestamp>,
}

impl Filters {
    /// The filter of an actor; `None` if it asks for the keys of another tenant.
    fn of(actor: &Actor, keys: &KeyFilter) -> Option<Self> {
        let tenant = keys.tenant_of(actor)?;
        Some(Self {
            operation: keys.operation.clone(),
            tenant: tenant.map(Tenant::as_str).map(str::to_owned),
            prefix: keys.prefix().map(str::to_owned),
            hash: keys.hash(),
            state: keys.state,
            since: keys.since,
        })
    }

    /// Whether every key matches, so that no more keys are read than are listed.
    fn is_any(&self) -> bool {
        let words = [&self.operation, &self.tenant, &self.prefix, &self.hash];
        words.iter().all(|it| it.is_none()) && self.state.is_none() && self.since.is_none()
    }

    /// Whether the key of a row matches.
    fn fit(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let is = |column: &str, wanted: Option<&str>| {
            let Some(wanted) = wanted else {
                return Ok(true);
            };
            let found = row.get_ref(column)?.as_str()?;
            Ok::<_, rusqlite::Error>(wanted == found)
        };
        let key = row.get_ref("key")?.as_str()?;
        let created_at = moment(row, "created_at")?;
        Ok(is("operation", self.operation.as_deref())?
            && is("tenant", self.tenant.as_deref())?
            && is("state", self.state.map(KeyState::as_str))?
            && self.since.is_none_or(|since| created_at >= since)
            && self.prefix.as_deref().is_none_or(|it| key.starts_with(it))
            && self.hash.as_deref().is_none_or(|it| has_hash(key, it)))
    }
}

/// Whether the short hash of a key begins with some text.
fn has_hash(key: &str, beginning: &str) -> bool {
    short_hash(key).starts_with(beginning)
}

/// A key of a list, with its place in the list.
type Listed = (Cursor, Result<KeySummary, StoreError>);

fn list(
    view: &View<'_>,
    find: &Filters,
    from: Cursor,
    limit: usize,
) -> Result<Page<KeySummary>, AdminError> {
    // Filters that normally match few keys use a separate index, unless they match many.
    let listed = match (find.state, &find.prefix) {
        (_, Some(prefix)) => {
            let params = [prefix.clone(), format!("{prefix}\u{7f}")];
            let sql = query!("admin/keys_by_prefix");
            few(view, find, from, sql, params, LOOK_UNDER)?
        }
        (Some(KeyState::InProgress), _) => {
            let sql = query!("admin/keys_in_progress");
            few(view, find, from, sql, (), LOOK)?
        }
        _ => None,
    };
    if let Some(mut listed) = listed {
        listed.sort_by(|(one, _), (other, _)| other.cmp(one));
        listed.truncate(limit);
        return page(listed, limit, None, None);
    }
    by_time(view, find, from, limit)
}

/// Reads the matching keys of an index that is not in the order of the list; `None` if there are too
/// many keys.
fn few(
    view: &View<'_>,
    find: &Filters,
    from: Cursor,
    sql: &str,
    params: impl Params,
    look: usize,
) -> Result<Option<Vec<Listed>>, AdminError> {
    let (mut listed, mut looked) = (Vec::new(), 0);
    view.visit(sql, params, |row| {
        looked += 1;
        let at = cursor(row)?;
        if at < from && find.fit(row)? {
            listed.push((at, summary(row)?));
        }
        Ok(if looked < look {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok((looked < look).then_some(listed))
}

/// Reads the keys in the order of the list.
fn by_time(
    view: &View<'_>,
    find: &Filters,
    from: Cursor,
    limit: usize,
) -> Result<Page<KeySummary>, AdminError> {
    let look = if find.is_any() { limit } else { LOOK };
    let (mut listed, mut ended, mut looked) = (Vec::new(), None, 0);
    let (millis, tie) = from.millis();
    view.visit(query!("admin/keys"), [millis, tie], |row| {
        looked += 1;
        let at = cursor(row)?;
        if find.fit(row)? {
            listed.push((at, summary(row)?));
        }
        if looked == look {
            ended = Some(at);
        }
        Ok(if looked < look && listed.len() < limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    page(listed, limit, ended, find.since)
}

fn page(
    listed: Vec<Listed>,
    limit: usize,
    ended: Option<Cursor>,
    since: Option<Timestamp>,
) -> Result<Page<KeySummary>, AdminError> {
    let last = listed.last().filter(|_| listed.len() == limit);
    let next = Cursor::next(last.map(|(last, _)| *last), ended, since);
    let items = listed.into_iter().map(|(_, summary)| summary);
    Ok(Page {
        items: items.collect::<Result<_, _>>()?,
        next,
    })
}

fn cursor(row: &Row<'_>) -> rusqlite::Result<Cursor> {
    Ok(Cursor::at(moment(row, "created_at")?, row.get("tie")?))
}

fn summary(row: &Row<'_>) -> rusqlite::Result<Result<KeySummary, StoreError>> {
    let (key, state): (String, String) = (row.get("key")?, row.get("state")?);
    let named = KeyState::named(&state).ok_or_else(|| corrupt(format!("key in state {state:?}")));
    let valid = IdempotencyKey::new(key.as_str());
    let valid = valid.map_err(|error| corrupt(format!("key: {error}")));
    let (state, short_hash) = match (named, valid) {
        (Ok(state), Ok(key)) => (state, key.short_hash()),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    Ok(Ok(KeySummary {
        tenant: row.get("tenant")?,
        operation: row.get("operation")?,
        key,
        short_hash,
        fingerprint: row.get("fingerprint")?,
        state,
        epoch: row.get("epoch")?,
        lease_until: optional_moment(row, "lease_until")?,
        resource_id: row.get("resource_id")?,
        recovery_point: row.get("recovery_point")?,
        status: row.get("response_status")?,
        body_bytes: row
            .get::<_, Option<i64>>("body_bytes")?
            .unwrap_or(0)
            .unsigned_abs(),
        created_at: moment(row, "created_at")?,
        completed_at: optional_moment(row, "completed_at")?,
        expires_at: moment(row, "expires_at")?,
    }))
}

/// Reads a key with its response, from the row of `admin/key`.
pub(super) fn record(row: &Row<'_>, view: &View<'_>) -> Result<FoundKey, StoreError> {
    let bad = |error: rusqlite::Error| corrupt(format!("idempotency key: {error}"));
    let summary = summary(row).map_err(bad)??;
    let read = || {
        let version = KeyVersion {
            epoch: row.get("epoch")?,
            claimed_at: row.get("created_at")?,
            transaction: row.get("xid")?,
        };
        let block: Option<Vec<u8>> = row.get("response_headers")?;
        let headers = StoredResponse::parse_header_block(&block.unwrap_or_default());
        let body: Option<Vec<u8>> = row.get("response_body")?;
        let stored = StoredKey {
            on_expired: row.get("on_expired")?,
            version: version.to_string(),
            // This store has neither: both are of the SQL contract, and of PostgreSQL's entries.
            owner: None,
            recovery_data: None,
            request_bytes: row
                .get::<_, Option<i64>>("request_bytes")?
                .map(i64::unsigned_abs),
            headers: Vec::new(),
            body: Bytes::from(body.unwrap_or_default()),
            summary,
        };
        Ok((stored, headers, version.transaction))
    };
    let (mut stored, headers, transaction) = read().map_err(bad)?;
    stored.headers = headers.ok_or_else(|| corrupt("stored response: its header block"))?;
    Ok(FoundKey {
        record: stored.record(view.keyring, view.now),
        transaction,
        at: view.now,
    })
}
