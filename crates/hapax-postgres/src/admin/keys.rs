//! Queries for idempotency keys: lists by a filter, and single keys.
//!
//! Lists start with the newest claim. Keys in progress are found by a partial index. With any other
//! filter, a page reads a bounded number of keys.

use async_trait::async_trait;
use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Cursor, KeyAdmin, KeyDecision, KeyFilter, KeyRecord, KeyState,
        KeySummary, KeyVersion, NoKeyVersion, PAGE_MAX, Page, StoredKey, check_reason, key_tenant,
        only_key,
    },
    idempotency::StoredResponse,
    key::{IdempotencyKey, Tenant},
    keyring::Keyring,
    store::StoreError,
};
use tokio_postgres::Row;

use super::{decide_key, filters::word, pagination, purge};
use crate::{
    delivery::settle::text,
    error::corrupt,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// A key with what identifies the last change of its row.
pub(super) struct VersionedKey {
    pub(super) record: KeyRecord,
    pub(super) version: KeyVersion,
    /// When it was read, by the database's clock.
    pub(super) at: Timestamp,
}

#[async_trait]
impl KeyAdmin for Postgres {
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
        // Filters that normally match few keys use a separate index, unless they match many.
        let narrow = match (filter.state, &find.prefix) {
            (_, Some(_)) => Some(("prefix", LOOK_UNDER)),
            (Some(KeyState::InProgress), _) => Some(("in_progress", LOOK)),
            _ => None,
        };
        if let Some((index, look)) = narrow {
            let found = find.ask(self, index, from, limit, look).await?;
            if found.first().is_none_or(|row| row.get::<_, i64>(0) < look) {
                return page(&found, limit, look, None);
            }
        }
        let look = if find.is_any() { rows(limit) } else { LOOK };
        let found = find.ask(self, "all", from, limit, look).await?;
        page(&found, limit, look, filter.since)
    }

    async fn key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: &str,
        key: &str,
    ) -> Result<KeyRecord, AdminError> {
        Ok(one(self, actor, tenant, Some(operation), key).await?.record)
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
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: &str,
) -> Result<VersionedKey, AdminError> {
    let tenant = key_tenant(actor, tenant, operation)?.map(text);
    let (key, named, time) = (text(key), operation.map(text), store.time());
    let params: [&dyn Param; 4] = [&key, &named, &tenant, &time];
    let found = store.ask(query!("admin/key"), &params).await?;
    let found = only_key(found.iter().collect(), operation, |row: &&Row| {
        row.get("operation")
    })?;
    record(found, store.keyring()).map_err(Into::into)
}

/// Keys that a page reads. This takes some tens of milliseconds.
const LOOK: i64 = 10_000;
/// Keys that a page reads if they are not stored in order of time, so that each is on another page
/// of the table.
const LOOK_UNDER: i64 = 2_000;

/// A filter as the parameters of a statement.
struct Filters {
    operation: Option<String>,
    tenant: Option<String>,
    prefix: Option<String>,
    hash: Option<String>,
    state: Option<&'static str>,
    since: Option<Moment>,
}

impl Filters {
    /// The filter of an actor; `None` if it asks for the keys of another tenant.
    fn of(actor: &Actor, keys: &KeyFilter) -> Option<Self> {
        let tenant = keys.tenant_of(actor)?;
        Some(Self {
            operation: word(keys.operation.as_ref()),
            tenant: tenant.map(Tenant::as_str).map(text),
            prefix: keys.prefix().map(text),
            hash: keys.hash().map(|hash| text(&hash)),
            state: keys.state.map(KeyState::as_str),
            since: keys.since.map(Moment),
        })
    }

    /// Whether every key matches, so that no more keys are read than are listed.
    fn is_any(&self) -> bool {
        let words = [&self.operation, &self.tenant, &self.prefix, &self.hash];
        words.iter().all(|it| it.is_none()) && self.state.is_none() && self.since.is_none()
    }

    async fn ask(
        &self,
        store: &Postgres,
        index: &str,
        from: Cursor,
        limit: usize,
        look: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let count = rows(limit);
        let params: [&dyn Param; 11] = [
            &self.operation,
            &self.tenant,
            &self.prefix,
            &self.hash,
            &self.state,
            &self.since,
            &from.micros,
            &from.tie,
            &count,
            &look,
            &index,
        ];
        store.ask(query!("admin/keys"), &params).await
    }
}

fn page(
    found: &[Row],
    limit: usize,
    look: i64,
    since: Option<Timestamp>,
) -> Result<Page<KeySummary>, AdminError> {
    let matching = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>("tenant").is_some());
    let listed: Vec<&Row> = matching.collect();
    let last = listed.last().filter(|_| listed.len() == limit);
    let last = last.map(|row| pagination::cursor(row));
    let items = listed.iter().map(|row| summary(row));
    Ok(Page {
        items: items.collect::<Result<_, _>>()?,
        next: pagination::next(last, found, look, since),
    })
}

fn summary(row: &Row) -> Result<KeySummary, StoreError> {
    let key: String = row.get("key");
    let state: &str = row.get("state");
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    let status: Option<i16> = row.get("response_status");
    let bytes: Option<i64> = row.get("body_bytes");
    Ok(KeySummary {
        tenant: row.get("tenant"),
        operation: row.get("operation"),
        short_hash: short_hash(&key)?,
        key,
        fingerprint: row.get("fingerprint"),
        state: KeyState::named(state).ok_or_else(|| corrupt(format!("key in state {state:?}")))?,
        epoch: row.get("epoch"),
        lease_until: moment("lease_until"),
        resource_id: row.get("resource_id"),
        recovery_point: row.get("recovery_point"),
        status: status.map(i16::unsigned_abs),
        body_bytes: bytes.unwrap_or(0).unsigned_abs(),
        created_at: row.get::<_, Moment>("created_at").0,
        completed_at: moment("completed_at"),
        expires_at: row.get::<_, Moment>("expires_at").0,
    })
}

pub(super) fn record(row: &Row, keyring: &Keyring) -> Result<VersionedKey, StoreError> {
    let summary = summary(row)?;
    let block: Option<&[u8]> = row.get("response_headers");
    let headers = StoredResponse::parse_header_block(block.unwrap_or_default());
    let body: Option<&[u8]> = row.get("response_body");
    let at = row.get::<_, Moment>("at").0;
    let version = KeyVersion {
        epoch: summary.epoch,
        claimed_at: row.get("micros"),
        transaction: row.get("xmin"),
    };
    let stored = StoredKey {
        on_expired: row.get("on_expired"),
        version: version.to_string(),
        owner: row.get("owner"),
        recovery_data: row
            .get::<_, Option<String>>("recovery_data")
            .map(Bytes::from),
        request_bytes: row
            .get::<_, Option<i64>>("request_bytes")
            .map(i64::unsigned_abs),
        headers: headers.ok_or_else(|| corrupt("stored response: its header block"))?,
        body: Bytes::copy_from_slice(body.unwrap_or_default()),
        summary,
    };
    Ok(VersionedKey {
        record: stored.record(keyring, at),
        version,
        at,
    })
}

fn short_hash(key: &str) -> Result<String, StoreError> {
    let key = IdempotencyKey::new(key).map_err(|error| corrupt(format!("key: {error}")))?;
    Ok(key.short_hash())
}
