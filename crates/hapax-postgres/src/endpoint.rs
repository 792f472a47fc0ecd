//! Endpoints on PostgreSQL: their changes, the queue of their deliveries, and the log of attempts.
//!
//! A record is one transaction. A claim is one statement, whose rows are locked with `SKIP LOCKED`, so
//! relays do not wait for each other. Requests and responses in the log are encrypted if the store has
//! a keyring; events in the queue are copies of the rows of the outbox, encrypted as they are there.

mod recovery;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::{Actor, AuditEntry, endpoint_object},
    delivery::Exhausted,
    endpoint::{
        ClaimedDeliveries, ClaimedDelivery, DeliveryClaim, EndpointAttempt, EndpointBacklog,
        EndpointChange, EndpointColumns, EndpointRecord, EndpointStore, FailingEndpoint,
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
use serde_json::json;
use tokio_postgres::Row;

use crate::{
    delivery::settle::text,
    error::corrupt,
    operational, outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, millis, rows},
    work::Work,
};

/// The actor, in the audit log, that disables an endpoint that fails, and enables it again.
const RELAY: &str = "relay";

#[async_trait]
impl EndpointStore for Postgres {
    async fn endpoint_changes(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<EndpointChange>, StoreError> {
        let params: [&dyn Param; 2] = [&after, &rows(limit)];
        let found = self.ask(query!("endpoint/changes"), &params).await?;
        Ok(found.iter().map(|row| columns(row).read()).collect())
    }

    async fn record_deliveries(&self, record: &EndpointRecord) -> Result<Recorded, StoreError> {
        // The keyring of a relay only decrypts, except for what the relay writes itself.
        let keyring = self.keyring().writing();
        let exchanges = record.attempts.iter();
        let exchanges = exchanges.map(|it| Exchange::of(it, &keyring));
        let exchanges: Vec<_> = exchanges.collect::<Result<_, _>>()?;
        let attempts = Attempts::of(&record.attempts, &exchanges, !keyring.is_empty());
        let mut work = Work::begin(self).await?;
        let (mut recorded, mut exhausted) = (Recorded::default(), Vec::new());
        if !record.queue.is_empty() {
            let (missing, failed) = queue(&mut work, &record.queue, self.time()).await?;
            recorded.missing = missing;
            exhausted.extend(failed);
        }
        if !record.settle.is_empty() {
            exhausted.extend(settle(&mut work, &record.settle, self.time()).await?);
        }
        if !record.attempts.is_empty() {
            work.ask(query!("endpoint/attempt"), &attempts.params())
                .await?;
            recorded.failing = count_failures(&mut work, record, self.time()).await?;
        }
        operational::emit(&mut work, exhausted).await?;
        work.commit().await?;
        Ok(recorded)
    }

    async fn claim_deliveries(
        &self,
        claim: &DeliveryClaim,
    ) -> Result<ClaimedDeliveries, StoreError> {
        let scan = i32::try_from(ENDPOINT_CLAIM_SCAN).unwrap_or(i32::MAX);
        let (after, time) = (claim.after.as_str(), self.time());
        let (single, busy): (&[String], &[String]) = (&claim.single, &claim.busy);
        let params: [&dyn Param; 8] = [
            &after,
            &scan,
            &rows(claim.each),
            &single,
            &busy,
            &rows(claim.limit),
            &millis(claim.lease),
            &time,
        ];
        let found = self.commit(query!("endpoint/claim"), &params).await?;
        let first = found.first();
        let first = first.ok_or_else(|| corrupt("the query that claims returned no row"))?;
        let (until, number): (Option<String>, i64) = (first.get("until"), first.get("number"));
        let deliveries = found.iter().filter_map(|row| claimed(row, self.keyring()));
        Ok(ClaimedDeliveries {
            deliveries: deliveries.collect::<Result<_, _>>()?,
            until: until.filter(|_| number >= i64::from(scan)),
        })
    }

    async fn disable_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        reason: &str,
        probe_after: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let mut work = Work::begin(self).await?;
        let next = bumped(&work.ask(query!("endpoint/bump"), &[]).await?)?;
        let (endpoint, reason, time) = (text(endpoint), text(reason), self.time());
        let probe_after = probe_after.map(millis);
        let params: [&dyn Param; 7] = [
            &endpoint,
            &reason,
            &next,
            &RELAY,
            &time,
            &version,
            &probe_after,
        ];
        let disabled = work.ask(query!("endpoint/disable"), &params).await?;
        let (id, why) = (endpoint.clone(), reason.clone());
        let report = |tenant| Occurrence::EndpointDisabled {
            endpoint: id,
            tenant,
            reason: why,
        };
        work.end(&disabled, "disable", &endpoint, &reason, report)
            .await
    }

    async fn drop_deliveries(&self, waiting_max: u32) -> Result<u64, StoreError> {
        let (most, limit, time) = (i64::from(waiting_max), rows(ENDPOINT_DROPPED), self.time());
        let params: [&dyn Param; 4] = [&most, &limit, &TOO_MANY_WAIT, &time];
        let mut work = Work::begin(self).await?;
        let dropped = work.ask(query!("endpoint/drop"), &params).await?;
        if dropped.is_empty() {
            work.rollback().await;
            return Ok(0);
        }
        operational::emit(&mut work, exhausted(&dropped)?).await?;
        work.commit().await?;
        Ok(dropped.len() as u64)
    }

    async fn endpoint_backlog(&self) -> Result<EndpointBacklog, StoreError> {
        let params: [&dyn Param; 2] = [&rows(ENDPOINT_BACKLOG_COUNTED), &self.time()];
        let found = self.ask(query!("endpoint/backlog"), &params).await?;
        let row = found.first();
        let row = row.ok_or_else(|| corrupt("the query that counts endpoints returned no row"))?;
        let overdue = u64::try_from(row.get::<_, i64>("overdue_ms")).unwrap_or(0);
        Ok(EndpointBacklog {
            waiting: count(row, "waiting"),
            overdue: Duration::from_millis(overdue),
            endpoints: count(row, "endpoints"),
            disabled: count(row, "disabled"),
            slowed: count(row, "slowed"),
        })
    }

    async fn purge_endpoints(&self, retention: Duration) -> Result<u64, StoreError> {
        let (limit, time) = (rows(ENDPOINT_PURGE_ROWS), self.time());
        let (age, deleted_age) = (millis(retention), millis(ENDPOINT_DELETED));
        let purges = [
            (query!("endpoint/purge_attempts"), age),
            (query!("endpoint/purge_deliveries"), age),
            (query!("endpoint/purge_abandoned"), age),
            (query!("endpoint/purge_deleted"), deleted_age),
        ];
        let orphans = query!("endpoint/purge_orphans");
        let deleted = self.ask(orphans, &[&limit]).await?;
        let mut total = deleted.first().map_or(0, |row| count(row, "deleted"));
        for (sql, age) in purges {
            let params: [&dyn Param; 3] = [&age, &limit, &time];
            let deleted = self.ask(sql, &params).await?;
            total += deleted.first().map_or(0, |row| count(row, "deleted"));
        }
        Ok(total)
    }
}

impl Work<'_> {
    /// Ends a change of an endpoint by a relay: with a line in the audit log and an operational event if it
    /// has changed a row, which is returned. The event is that of its tenant.
    async fn end(
        mut self,
        changed: &[Row],
        action: &str,
        endpoint: &str,
        why: &str,
        report: impl FnOnce(String) -> Occurrence,
    ) -> Result<bool, StoreError> {
        let Some(row) = changed.first() else {
            self.rollback().await;
            return Ok(false);
        };
        let tenant: String = row.get("tenant");
        let reported = report(tenant.clone());
        let detail = AuditEntry::detail(&Actor::new(RELAY), &json!({"why": why})).to_string();
        let (tenant, object) = (Some(tenant), endpoint_object(endpoint));
        let params: [&dyn Param; 6] = [&RELAY, &tenant, &action, &object, &detail, &"done"];
        self.ask(query!("admin/note"), &params).await?;
        operational::emit(&mut self, vec![reported]).await?;
        self.commit().await?;
        Ok(true)
    }
}

/// The version that was drawn.
pub(crate) fn bumped(drawn: &[Row]) -> Result<i64, StoreError> {
    let row = drawn.first();
    let row = row.ok_or_else(|| corrupt("the version of the endpoints has no row"))?;
    Ok(row.get("version"))
}

/// Puts deliveries into the queue. Returns the positions whose event is not in the outbox, and the new
/// deliveries that have failed.
async fn queue(
    work: &mut Work<'_>,
    queue: &[QueuedDelivery],
    time: Option<Moment>,
) -> Result<(Vec<i64>, Vec<Occurrence>), StoreError> {
    let all = || queue.iter();
    let endpoints: Vec<&str> = all().map(|it| it.endpoint.as_str()).collect();
    let positions: Vec<i64> = all().map(|it| it.position).collect();
    let ids: Vec<String> = all().map(|it| it.event_id.to_string()).collect();
    let states: Vec<&str> = all().map(|it| it.next.state()).collect();
    let attempts: Vec<i32> = all().map(|it| it.attempt.cast_signed()).collect();
    let waits: Vec<i64> = all().map(|it| millis(it.next.wait())).collect();
    let errors: Vec<Option<String>> = all().map(|it| it.error.as_deref().map(text)).collect();
    let params: [&dyn Param; 2] = [&positions, &ids];
    let missing = work.ask(query!("endpoint/missing"), &params).await?;
    let params: [&dyn Param; 8] = [
        &endpoints, &positions, &ids, &states, &attempts, &waits, &errors, &time,
    ];
    let queued = work.ask(query!("endpoint/queue"), &params).await?;
    let missing = missing.iter().map(|row| row.get("position")).collect();
    Ok((missing, exhausted(&queued)?))
}

/// Settles claimed deliveries. Returns those that have failed now.
async fn settle(
    work: &mut Work<'_>,
    settled: &[SettledDelivery],
    time: Option<Moment>,
) -> Result<Vec<Occurrence>, StoreError> {
    let all = || settled.iter();
    let endpoints: Vec<&str> = all().map(|it| it.endpoint.as_str()).collect();
    let ids: Vec<String> = all().map(|it| it.event_id.to_string()).collect();
    let attempts: Vec<i32> = all().map(|it| it.attempt.cast_signed()).collect();
    let states: Vec<&str> = all().map(|it| it.next.state()).collect();
    let waits: Vec<i64> = all().map(|it| millis(it.next.wait())).collect();
    let errors: Vec<Option<String>> = all().map(|it| it.error.as_deref().map(text)).collect();
    let postponed: Vec<bool> = all().map(|it| it.next.is_postponed()).collect();
    let params: [&dyn Param; 8] = [
        &endpoints, &ids, &attempts, &states, &waits, &errors, &time, &postponed,
    ];
    exhausted(&work.ask(query!("endpoint/settle"), &params).await?)
}

/// The deliveries of these rows that have no attempts left.
fn exhausted(rows: &[Row]) -> Result<Vec<Occurrence>, StoreError> {
    let failed = rows.iter().filter(|row| row.get("has_failed"));
    failed.map(exhausted_delivery).collect()
}

fn exhausted_delivery(row: &Row) -> Result<Occurrence, StoreError> {
    let (id, tenant): (String, String) = (row.get("endpoint"), row.get("tenant"));
    let event_id: &str = row.get("event_id");
    let event_id = event_id
        .parse::<EventId>()
        .map_err(|error| corrupt(format!("delivery to {id}: {error}")))?;
    Ok(Occurrence::Exhausted {
        delivery: Exhausted {
            event_id,
            event_type: row.get("type"),
            event_tenant: Some(tenant.clone()),
            attempts: row.get::<_, i32>("attempt").cast_unsigned(),
            error: row.get("last_error"),
        },
        receiver: Receiver::Endpoint { id, tenant },
    })
}

/// Counts the failures of the endpoints of the recorded attempts. Returns those whose last attempt failed.
async fn count_failures(
    work: &mut Work<'_>,
    record: &EndpointRecord,
    time: Option<Moment>,
) -> Result<Vec<FailingEndpoint>, StoreError> {
    let counted = failures_of(&record.attempts);
    let endpoints: Vec<&str> = counted.keys().copied().collect();
    let all = || counted.values();
    let successes: Vec<bool> = all().map(|it| it.has_succeeded).collect();
    let failures: Vec<i32> = all().map(|it| it.failures.cast_signed()).collect();
    let errors: Vec<Option<String>> = all().map(|it| it.last_error.map(text)).collect();
    let span = millis(record.failing_span);
    let slowed_from = ENDPOINT_SLOW_FAILURES.cast_signed();
    let (first, longest) = (millis(ENDPOINT_PAUSE.0), millis(ENDPOINT_PAUSE.1));
    let params: [&dyn Param; 9] = [
        &endpoints,
        &successes,
        &failures,
        &errors,
        &time,
        &span,
        &slowed_from,
        &first,
        &longest,
    ];
    let failing = work.ask(query!("endpoint/failures"), &params).await?;
    Ok(failing.iter().filter_map(failing_endpoint).collect())
}

fn failing_endpoint(row: &Row) -> Option<FailingEndpoint> {
    let failing_ms: i64 = row.get::<_, Option<i64>>("failing_ms")?;
    Some(FailingEndpoint {
        id: row.get("id"),
        version: row.get("version"),
        failures: row.get::<_, i32>("failures").cast_unsigned(),
        failing_for: Duration::from_millis(u64::try_from(failing_ms).unwrap_or(0)),
        spans: row.get::<_, i32>("failing_spans").cast_unsigned(),
    })
}

/// Attempts as the columns of `endpoint/attempt`.
struct Attempts<'a> {
    endpoints: Vec<&'a str>,
    positions: Vec<i64>,
    ids: Vec<String>,
    kinds: Vec<&'a str>,
    numbers: Vec<i32>,
    started: Vec<Moment>,
    durations: Vec<i64>,
    outcomes: Vec<&'static str>,
    statuses: Vec<Option<i16>>,
    errors: Vec<Option<String>>,
    requests: Vec<&'a [u8]>,
    responses: Vec<&'a [u8]>,
    is_encrypted: bool,
}

impl<'a> Attempts<'a> {
    fn of(attempts: &'a [EndpointAttempt], exchanges: &'a [Exchange], is_encrypted: bool) -> Self {
        let all = || attempts.iter();
        Self {
            endpoints: all().map(|it| it.endpoint.as_str()).collect(),
            positions: all().map(|it| it.position).collect(),
            ids: all().map(|it| it.event_id.to_string()).collect(),
            kinds: all().map(|it| it.kind.as_str()).collect(),
            numbers: all().map(|it| it.number.cast_signed()).collect(),
            started: all().map(|it| Moment(it.started_at)).collect(),
            durations: all().map(|it| millis(it.duration)).collect(),
            outcomes: all().map(|it| it.outcome.as_str()).collect(),
            statuses: all()
                .map(|it| it.status.and_then(|status| i16::try_from(status).ok()))
                .collect(),
            errors: all().map(|it| it.error.as_deref().map(text)).collect(),
            requests: exchanges.iter().map(|it| &*it.request).collect(),
            responses: exchanges.iter().map(|it| &*it.response).collect(),
            is_encrypted,
        }
    }

    fn params(&self) -> [&dyn Param; 13] {
        [
            &self.endpoints,
            &self.positions,
            &self.ids,
            &self.kinds,
            &self.numbers,
            &self.started,
            &self.durations,
            &self.outcomes,
            &self.statuses,
            &self.errors,
            &self.requests,
            &self.responses,
            &self.is_encrypted,
        ]
    }
}

/// The request and the response of an attempt as they are stored.
struct Exchange {
    request: Bytes,
    response: Bytes,
}

impl Exchange {
    /// Encrypts a request and a response, each for its place, if there is a key.
    fn of(attempt: &EndpointAttempt, keyring: &Keyring) -> Result<Self, StoreError> {
        let event = attempt.event_id.to_string();
        let encrypt = |part: &str, text: &Bytes| {
            let place = [PLACE, part, attempt.endpoint.as_str(), event.as_str()];
            let encrypted = keyring.encrypt(&place, text.clone());
            encrypted.map_err(StoreError::unavailable)
        };
        Ok(Self {
            request: encrypt(REQUEST, &attempt.request)?,
            response: encrypt(RESPONSE, &attempt.response)?,
        })
    }
}

/// The places of requests and responses, to which their encryption is bound.
const PLACE: &str = "endpoint attempt";
const REQUEST: &str = "request";
const RESPONSE: &str = "response";

/// Decrypts the request and the response of a row of the log. A part that no key decrypts is empty.
pub(crate) fn decrypted(
    row: &Row,
    endpoint: &str,
    event: &str,
    keyring: &Keyring,
) -> (Vec<u8>, Vec<u8>) {
    let is_encrypted: bool = row.get("is_encrypted");
    let read = |part: &str, column: &str| {
        let stored: &[u8] = row.get(column);
        if !is_encrypted {
            return stored.to_vec();
        }
        let place = [PLACE, part, endpoint, event];
        keyring.decrypt(&place, stored).unwrap_or_default()
    };
    (read(REQUEST, "request"), read(RESPONSE, "response"))
}

fn columns(row: &Row) -> EndpointColumns {
    EndpointColumns {
        id: row.get("id"),
        tenant: row.get("tenant"),
        url: row.get("url"),
        types: row.get("types"),
        filter: row.get("filter"),
        payload_mode: row.get("payload_mode"),
        mapping: row.get("mapping"),
        sealed: row.get("sealed"),
        previous_until: moment(row, "previous_until"),
        is_enabled: row.get("is_enabled"),
        is_deleted: row.get("is_deleted"),
        is_catching_up: row.get("is_catching_up"),
        version: row.get("version"),
    }
}

fn moment(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<Moment>>(column).map(|it| it.0)
}

/// A claimed delivery; `None` for the row that only describes the search.
fn claimed(row: &Row, keyring: &Keyring) -> Option<Result<ClaimedDelivery, StoreError>> {
    let endpoint: String = row.get::<_, Option<String>>("endpoint")?;
    let event_id: &str = row.get("event_id");
    let (attempt, counted_from): (i32, i32) = (row.get("attempt"), row.get("counted_from"));
    let event_id = event_id
        .parse::<EventId>()
        .map_err(|error| corrupt(format!("delivery to {endpoint}: {error}")));
    Some(event_id.map(|event_id| ClaimedDelivery {
        endpoint,
        event_id,
        attempt: attempt.cast_unsigned(),
        counted: attempt.saturating_sub(counted_from).cast_unsigned(),
        event: outbox::event(row, keyring).map_err(|error| error.error_chain()),
    }))
}

fn count(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}
