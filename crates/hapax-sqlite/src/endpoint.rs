//! Endpoints on SQLite: their changes, the queue of their deliveries, and the log of attempts.
//!
//! A record is one job of the writer, and so is a claim. Requests and responses in the log are
//! encrypted if the store has a keyring; events in the queue are copies of the rows of the outbox,
//! encrypted as they are there.

mod recovery;

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{Actor, AuditEntry, endpoint_object},
    delivery::Exhausted,
    endpoint::{
        ClaimedDeliveries, ClaimedDelivery, DeliveryClaim, EndpointAttempt, EndpointBacklog,
        EndpointChange, EndpointColumns, EndpointRecord, EndpointStore, FailingEndpoint, NextStep,
        QueuedDelivery, Recorded, SettledDelivery, TOO_MANY_WAIT, failures_of,
    },
    event::EventId,
    keyring::Keyring,
    limits::{
        ENDPOINT_BACKLOG_COUNTED, ENDPOINT_CLAIM_SCAN, ENDPOINT_DELETED, ENDPOINT_DROPPED,
        ENDPOINT_PAUSE, ENDPOINT_PURGE_ROWS, ENDPOINT_SLOW_FAILURES,
    },
    operational::{Occurrence, Receiver},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};
use serde_json::json;

use crate::{
    error::{corrupt, not_encrypted, store_error},
    operational::Emitter,
    outbox::event,
    query,
    sqlite::Sqlite,
    value::rows,
    writer::WriterContext,
};

/// The actor, in the audit log, that disables an endpoint that fails, and enables it again.
const RELAY: &str = "relay";

#[async_trait]
impl EndpointStore for Sqlite {
    async fn endpoint_changes(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<EndpointChange>, StoreError> {
        let read = move |conn: &Connection| {
            let mut changes = conn.prepare_cached(query!("endpoint/changes"))?;
            let changes = changes.query_map(params![after, rows(limit)], columns)?;
            changes.collect::<rusqlite::Result<Vec<_>>>()
        };
        let found = self.read(read).await?;
        Ok(found.into_iter().map(EndpointColumns::read).collect())
    }

    async fn record_deliveries(&self, record: &EndpointRecord) -> Result<Recorded, StoreError> {
        // The keyring of a relay only decrypts, except for what the relay writes itself.
        let keyring = self.keyring().writing();
        let mut record = record.clone();
        for attempt in &mut record.attempts {
            encrypt(attempt, &keyring)?;
        }
        let (is_encrypted, emitter) = (!keyring.is_empty(), Emitter::of(self));
        let write = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let recorded = self::record(&ctx.conn, &record, is_encrypted, now);
            let (recorded, exhausted) = recorded.map_err(store_error)?;
            emitter.emit(ctx, exhausted)?;
            Ok(recorded)
        };
        self.submit(write).await
    }

    async fn claim_deliveries(
        &self,
        claim: &DeliveryClaim,
    ) -> Result<ClaimedDeliveries, StoreError> {
        let (claim, keyring) = (claim.clone(), self.keyring().clone());
        self.submit(move |ctx| self::claim(&ctx.conn, &claim, ctx.now(), &keyring))
            .await
    }

    async fn disable_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        reason: &str,
        probe_after: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let (endpoint, reason) = (endpoint.to_owned(), reason.to_owned());
        let emitter = Emitter::of(self);
        let disable = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let next = bump(&ctx.conn).map_err(store_error)?;
            let probe_after = probe_after.map(millis);
            let params = params![endpoint, reason, next, RELAY, now, version, probe_after];
            let sql = query!("endpoint/disable");
            let line = ("disable", endpoint.as_str(), reason.as_str());
            let tenant = change_by_relay(&ctx.conn, sql, params, line, now);
            let Some(tenant) = tenant.map_err(store_error)? else {
                return Ok(false);
            };
            let disabled = Occurrence::EndpointDisabled {
                endpoint,
                tenant,
                reason,
            };
            emitter.emit(ctx, vec![disabled])?;
            Ok(true)
        };
        self.submit(disable).await
    }

    async fn drop_deliveries(&self, waiting_max: u32) -> Result<u64, StoreError> {
        let emitter = Emitter::of(self);
        let drop = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let dropped = drop_excess(&ctx.conn, i64::from(waiting_max), now)?;
            let count = dropped.len() as u64;
            emitter.emit(ctx, dropped)?;
            Ok(count)
        };
        self.submit(drop).await
    }

    async fn endpoint_backlog(&self) -> Result<EndpointBacklog, StoreError> {
        let now = self.clock().now().as_millis();
        let read = move |conn: &Connection| {
            let mut backlog = conn.prepare_cached(query!("endpoint/backlog"))?;
            backlog.query_row(params![rows(ENDPOINT_BACKLOG_COUNTED), now], |row| {
                let overdue: i64 = row.get("overdue_ms")?;
                Ok(EndpointBacklog {
                    waiting: count(row, "waiting")?,
                    overdue: Duration::from_millis(u64::try_from(overdue).unwrap_or(0)),
                    endpoints: count(row, "endpoints")?,
                    disabled: count(row, "disabled")?,
                    slowed: count(row, "slowed")?,
                })
            })
        };
        self.read(read).await
    }

    async fn purge_endpoints(&self, retention: Duration) -> Result<u64, StoreError> {
        let now = self.clock().now().as_millis();
        let before = |age: Duration| now.saturating_sub(millis(age));
        let (old, deleted) = (before(retention), before(ENDPOINT_DELETED));
        let ahead = now.saturating_add(millis(retention));
        let purge = move |ctx: &mut WriterContext| {
            let (conn, most) = (&ctx.conn, rows(ENDPOINT_PURGE_ROWS));
            let attempts = params![old, most, ahead];
            let purge = |sql: &str, before: i64| execute(conn, sql, params![before, most]);
            let all = || {
                Ok(execute(conn, query!("endpoint/purge_orphans"), [most])?
                    + execute(conn, query!("endpoint/purge_attempts"), attempts)?
                    + purge(query!("endpoint/purge_deliveries"), old)?
                    + purge(query!("endpoint/purge_abandoned"), old)?
                    + purge(query!("endpoint/purge_deleted"), deleted)?)
            };
            all().map(|purged| purged as u64).map_err(store_error)
        };
        self.submit(purge).await
    }
}

/// Draws the next version of the endpoints.
pub(crate) fn bump(conn: &Connection) -> rusqlite::Result<i64> {
    let mut bump = conn.prepare_cached(query!("endpoint/bump"))?;
    bump.query_row([], |row| row.get("version"))
}

fn record(
    conn: &Connection,
    record: &EndpointRecord,
    is_encrypted: bool,
    now: i64,
) -> rusqlite::Result<(Recorded, Vec<Occurrence>)> {
    let (mut recorded, mut exhausted) = (Recorded::default(), Vec::new());
    for queued in &record.queue {
        let (is_there, failed) = queue(conn, queued, now)?;
        if !is_there {
            recorded.missing.push(queued.position);
        }
        exhausted.extend(failed);
    }
    for settled in &record.settle {
        exhausted.extend(settle(conn, settled, now)?);
    }
    for attempt in &record.attempts {
        log(conn, attempt, is_encrypted)?;
    }
    for (endpoint, counted) in failures_of(&record.attempts) {
        let params = params![
            endpoint,
            counted.has_succeeded,
            counted.failures,
            counted.last_error,
            now,
            millis(record.failing_span),
            ENDPOINT_SLOW_FAILURES,
            millis(ENDPOINT_PAUSE.0),
            millis(ENDPOINT_PAUSE.1),
        ];
        let failing = first_of(conn, query!("endpoint/failures"), params, failing)?;
        recorded.failing.extend(failing.flatten());
    }
    Ok((recorded, exhausted))
}

/// Puts a delivery into the queue. Returns whether its event is in the outbox, and the delivery if it
/// is new and has failed.
fn queue(
    conn: &Connection,
    queued: &QueuedDelivery,
    now: i64,
) -> rusqlite::Result<(bool, Option<Occurrence>)> {
    let event_id = queued.event_id.to_string();
    let mut is_there = conn.prepare_cached(query!("endpoint/missing"))?;
    let is_there: bool = is_there.query_row(params![queued.position, event_id], |row| {
        row.get("is_there")
    })?;
    if !is_there {
        return Ok((false, None));
    }
    let params = params![
        queued.endpoint,
        queued.position,
        event_id,
        queued.next.state(),
        queued.attempt,
        millis(queued.next.wait()),
        queued.error,
        now,
    ];
    let new = first_of(conn, query!("endpoint/queue"), params, tenant_and_type)?;
    let failed = new.filter(|_| queued.next == NextStep::Failed);
    let error = queued.error.clone();
    Ok((
        true,
        failed.map(|of| exhausted(&queued.endpoint, queued.event_id, of, queued.attempt, error)),
    ))
}

/// Settles a claimed delivery. Returns it if it has failed now.
fn settle(
    conn: &Connection,
    settled: &SettledDelivery,
    now: i64,
) -> rusqlite::Result<Option<Occurrence>> {
    let params = params![
        settled.endpoint,
        settled.event_id.to_string(),
        settled.attempt,
        settled.next.state(),
        millis(settled.next.wait()),
        settled.error,
        now,
        settled.next.is_postponed(),
    ];
    let changed = first_of(conn, query!("endpoint/settle"), params, tenant_and_type)?;
    let failed = changed.filter(|_| settled.next == NextStep::Failed);
    let error = settled.error.clone();
    Ok(failed.map(|of| {
        exhausted(
            &settled.endpoint,
            settled.event_id,
            of,
            settled.attempt,
            error,
        )
    }))
}

fn tenant_and_type(row: &Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get("tenant")?, row.get("type")?))
}

/// An exhausted delivery to an endpoint, of an event with this tenant, which is that of
/// the endpoint, and this type.
fn exhausted(
    endpoint: &str,
    event_id: EventId,
    (tenant, event_type): (String, String),
    attempts: u32,
    error: Option<String>,
) -> Occurrence {
    Occurrence::Exhausted {
        delivery: Exhausted {
            event_id,
            event_type,
            event_tenant: Some(tenant.clone()),
            attempts,
            error,
        },
        receiver: Receiver::Endpoint {
            id: endpoint.to_owned(),
            tenant,
        },
    }
}

fn log(conn: &Connection, attempt: &EndpointAttempt, is_encrypted: bool) -> rusqlite::Result<()> {
    let params = params![
        attempt.endpoint,
        attempt.position,
        attempt.event_id.to_string(),
        attempt.kind,
        attempt.number,
        attempt.started_at.as_millis(),
        millis(attempt.duration),
        attempt.outcome.as_str(),
        attempt.status,
        attempt.error,
        &attempt.request[..],
        &attempt.response[..],
        is_encrypted,
    ];
    execute(conn, query!("endpoint/attempt"), params).map(drop)
}

fn failing(row: &Row<'_>) -> rusqlite::Result<Option<FailingEndpoint>> {
    let failing_ms: Option<i64> = row.get("failing_ms")?;
    let Some(failing_ms) = failing_ms else {
        return Ok(None);
    };
    Ok(Some(FailingEndpoint {
        id: row.get("id")?,
        version: row.get("version")?,
        failures: row.get("failures")?,
        failing_for: Duration::from_millis(u64::try_from(failing_ms).unwrap_or(0)),
        spans: row.get("failing_spans")?,
    }))
}

fn claim(
    conn: &Connection,
    claim: &DeliveryClaim,
    now: Timestamp,
    keyring: &Keyring,
) -> Result<ClaimedDeliveries, StoreError> {
    let (mut claimed, mut after) = (ClaimedDeliveries::default(), claim.after.clone());
    for _ in 0..ENDPOINT_CLAIM_SCAN {
        let Some(endpoint) = next_endpoint(conn, &after).map_err(store_error)? else {
            return Ok(claimed);
        };
        let room = claim.limit.saturating_sub(claimed.deliveries.len());
        let each = if claim.single.contains(&endpoint) {
            1
        } else {
            claim.each
        };
        if !claim.busy.contains(&endpoint) {
            let due = due(conn, &endpoint, now, each.min(room)).map_err(store_error)?;
            for id in due {
                let delivery = claim_one(conn, id, now, claim.lease, keyring)?;
                claimed.deliveries.push(delivery);
            }
        }
        after = endpoint;
        if claimed.deliveries.len() >= claim.limit {
            break;
        }
    }
    claimed.until = Some(after);
    Ok(claimed)
}

fn next_endpoint(conn: &Connection, after: &str) -> rusqlite::Result<Option<String>> {
    let mut next = conn.prepare_cached(query!("endpoint/next"))?;
    next.query_row([after], |row| row.get("endpoint"))
        .optional()
}

fn due(
    conn: &Connection,
    endpoint: &str,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<i64>> {
    let mut due = conn.prepare_cached(query!("endpoint/due"))?;
    let due = due.query_map(params![endpoint, now.as_millis(), rows(limit)], |row| {
        row.get("id")
    })?;
    let mut due: Vec<i64> = due.collect::<rusqlite::Result<_>>()?;
    if limit > 0 {
        let params = params![endpoint, now.as_millis()];
        due.extend(first_of(conn, query!("endpoint/oldest"), params, |row| {
            row.get::<_, i64>("id")
        })?);
    }
    Ok(due)
}

fn claim_one(
    conn: &Connection,
    id: i64,
    now: Timestamp,
    lease: Duration,
    keyring: &Keyring,
) -> Result<ClaimedDelivery, StoreError> {
    let read = |row: &Row<'_>| {
        let (endpoint, event_id): (String, String) = (row.get("endpoint")?, row.get("event_id")?);
        let (attempt, counted_from): (u32, u32) = (row.get("attempt")?, row.get("counted_from")?);
        let event = event(row, keyring).map_err(|error| error.error_chain());
        Ok((endpoint, event_id, attempt, counted_from, event))
    };
    let mut claim = conn
        .prepare_cached(query!("endpoint/claim"))
        .map_err(store_error)?;
    let params = params![id, now.after(lease).as_millis(), now.as_millis()];
    let claimed = claim.query_row(params, read);
    let (endpoint, event_id, attempt, counted_from, event) = claimed.map_err(store_error)?;
    let event_id = event_id
        .parse::<EventId>()
        .map_err(|error| corrupt(format!("delivery to {endpoint}: {error}")))?;
    Ok(ClaimedDelivery {
        endpoint,
        event_id,
        attempt,
        counted: attempt.saturating_sub(counted_from),
        event,
    })
}

/// Ends the oldest deliveries of each endpoint for which more than `most` wait. Returns them.
fn drop_excess(conn: &Connection, most: i64, now: i64) -> Result<Vec<Occurrence>, StoreError> {
    let (mut dropped, mut after) = (Vec::new(), String::new());
    while let Some(endpoint) = next_endpoint(conn, &after).map_err(store_error)? {
        let room = rows(ENDPOINT_DROPPED.saturating_sub(dropped.len()));
        if room <= 0 {
            break;
        }
        let waiting = count_waiting(conn, &endpoint, most.saturating_add(room));
        let waiting = waiting.map_err(store_error)?;
        if waiting > most {
            let ended = drop_oldest(conn, &endpoint, waiting - most, now);
            for (event_id, of, attempts) in ended.map_err(store_error)? {
                let event_id = event_id
                    .parse::<EventId>()
                    .map_err(|error| corrupt(format!("delivery to {endpoint}: {error}")))?;
                let error = Some(TOO_MANY_WAIT.to_owned());
                dropped.push(exhausted(&endpoint, event_id, of, attempts, error));
            }
        }
        after = endpoint;
    }
    Ok(dropped)
}

/// Counts the deliveries that wait for an endpoint, up to a bound.
fn count_waiting(conn: &Connection, endpoint: &str, most: i64) -> rusqlite::Result<i64> {
    let mut waiting = conn.prepare_cached(query!("endpoint/excess"))?;
    waiting.query_row(params![endpoint, most], |row| row.get("number"))
}

/// A delivery that was dropped: the id of its event, its tenant and its type, and the number of
/// attempts that were made.
type Dropped = (String, (String, String), u32);

/// Ends the oldest deliveries of an endpoint, each with a line in the log of attempts.
fn drop_oldest(
    conn: &Connection,
    endpoint: &str,
    number: i64,
    now: i64,
) -> rusqlite::Result<Vec<Dropped>> {
    let mut oldest = conn.prepare_cached(query!("endpoint/drop"))?;
    let mut log = conn.prepare_cached(query!("endpoint/log_dropped"))?;
    let mut ended = oldest.query(params![endpoint, number, TOO_MANY_WAIT, now])?;
    let mut dropped = Vec::new();
    while let Some(row) = ended.next()? {
        let (event_id, of): (String, _) = (row.get("event_id")?, tenant_and_type(row)?);
        let (position, attempt): (i64, u32) = (row.get("position")?, row.get("attempt")?);
        log.execute(params![
            endpoint,
            position,
            event_id,
            of.1,
            attempt,
            now,
            TOO_MANY_WAIT
        ])?;
        dropped.push((event_id, of, attempt.saturating_sub(1)));
    }
    Ok(dropped)
}

/// Runs a change of an endpoint by a relay that returns its tenant, and writes its line to the audit log:
/// action, endpoint and reason. Returns the tenant if it has changed something.
fn change_by_relay(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    (action, endpoint, why): (&str, &str, &str),
    now: i64,
) -> rusqlite::Result<Option<String>> {
    let tenant = first_of(conn, sql, params, |row| row.get::<_, String>("tenant"))?;
    let Some(tenant) = tenant else {
        return Ok(None);
    };
    let detail = AuditEntry::detail(&Actor::new(RELAY), &json!({"why": why})).to_string();
    let object = endpoint_object(endpoint);
    let params = params![now, RELAY, tenant, action, object, detail, "done"];
    execute(conn, query!("admin/note"), params)?;
    Ok(Some(tenant))
}

/// Reads the first row of a statement.
fn first_of<R>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
) -> rusqlite::Result<Option<R>> {
    conn.prepare_cached(sql)?.query_row(params, read).optional()
}

/// Runs a statement. Returns how many rows it has changed.
fn execute(conn: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
    conn.prepare_cached(sql)?.execute(params)
}

/// The places of requests and responses, to which their encryption is bound.
const PLACE: &str = "endpoint attempt";
const REQUEST: &str = "request";
const RESPONSE: &str = "response";

/// Encrypts the request and the response, each for its place, if there is a key.
fn encrypt(attempt: &mut EndpointAttempt, keyring: &Keyring) -> Result<(), StoreError> {
    let (endpoint, event) = (attempt.endpoint.clone(), attempt.event_id.to_string());
    for (part, text) in [
        (REQUEST, &mut attempt.request),
        (RESPONSE, &mut attempt.response),
    ] {
        let place = [PLACE, part, endpoint.as_str(), event.as_str()];
        let encrypted = keyring.encrypt(&place, text.clone());
        *text = encrypted.map_err(not_encrypted)?;
    }
    Ok(())
}

/// Decrypts the request and the response of a row of the log. A part that no key decrypts is empty.
pub(crate) fn decrypted(
    row: &Row<'_>,
    endpoint: &str,
    event: &str,
    keyring: &Keyring,
) -> rusqlite::Result<(Vec<u8>, Vec<u8>)> {
    let is_encrypted: bool = row.get("is_encrypted")?;
    let read = |part: &str, column: &str| -> rusqlite::Result<Vec<u8>> {
        let stored: Vec<u8> = row.get(column)?;
        if !is_encrypted {
            return Ok(stored);
        }
        let place = [PLACE, part, endpoint, event];
        Ok(keyring.decrypt(&place, &stored).unwrap_or_default())
    };
    Ok((read(REQUEST, "request")?, read(RESPONSE, "response")?))
}

fn columns(row: &Row<'_>) -> rusqlite::Result<EndpointColumns> {
    let previous_until: Option<i64> = row.get("previous_until")?;
    Ok(EndpointColumns {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        url: row.get("url")?,
        types: row.get("types")?,
        filter: row.get("filter")?,
        payload_mode: row.get("payload_mode")?,
        mapping: row.get("mapping")?,
        sealed: row.get("sealed")?,
        previous_until: previous_until.map(Timestamp::from_millis),
        is_enabled: row.get("is_enabled")?,
        is_deleted: row.get("is_deleted")?,
        is_catching_up: row.get("is_catching_up")?,
        version: row.get("version")?,
    })
}

pub(crate) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let count: i64 = row.get(column)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
