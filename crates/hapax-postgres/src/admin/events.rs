//! Queries for events: by a filter, by id, and the status of each at every destination.
//!
//! There is no index for these queries, because every producer would pay for it. Positions increase
//! with time, so the position of a point in time is found by binary search. The clocks of producers
//! may differ by [`RequestSeek::SKEW`]. If a clock was further off, a list for a window of time and
//! `find_event_near` may miss its events. `find_event` does not miss any: it reads all events before
//! it reports that there is none.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Count, DeliveryStatus, EventAdmin, EventFilter, EventSummary, PAGE_MAX,
        Page, RequestSeek, Trace, destination_of, read_cursor,
    },
    delivery::Attempt,
    event::{EventId, Payload},
    keyring::Keyring,
    outbox::{OutboxEvent, decode_columns},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{estimate, filters::Filters};
use crate::{
    delivery::dead_letter::attempts,
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Events that one page reads. This takes some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Events that are read on either side of a point in time to find one that was created about then.
/// This takes some tens of milliseconds.
const LOOK_NEAR: i64 = 20_000;

#[async_trait]
impl EventAdmin for Postgres {
    async fn events(
        &self,
        actor: &Actor,
        filter: &EventFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<EventSummary>, AdminError> {
        let before: Option<i64> = read_cursor(before, |text| text.parse().ok())?;
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(Page::last(Vec::new()));
        };
        if before.is_none()
            && let Some(position) = place_of(self, actor, filter).await?
        {
            let (low, high) = only(position, filter);
            let params = find.with(&[&high, &low, &1_i64, &1_i64]);
            let found = self.ask(query!("admin/events"), &params).await?;
            return Ok(Page::last(found.iter().map(summary).collect()));
        }
        let (low, high) = window(self, filter).await?;
        let high = before.map_or(high, |before| before.min(high));
        let count = rows(limit.clamp(1, PAGE_MAX));
        let params = find.with(&[&high, &low, &LOOK, &count]);
        let found = self.ask(query!("admin/events"), &params).await?;
        let items: Vec<EventSummary> = found.iter().map(summary).collect();
        let next = if rows(items.len()) == count {
            items.last().map(|it| it.position.to_string())
        } else {
            let params: [&dyn Param; 3] = [&high, &low, &(LOOK - 1)];
            let ends = self.ask(query!("admin/looked_until"), &params).await?;
            ends.first().map(|row| row.get::<_, i64>(0).to_string())
        };
        Ok(Page { items, next })
    }

    async fn count_events(&self, actor: &Actor, filter: &EventFilter) -> Result<u64, AdminError> {
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(0);
        };
        let (low, high) = bounds(self, actor, filter).await?;
        let params = find.with(&[&high, &low]);
        let found = self.ask(query!("admin/count_events"), &params).await?;
        Ok(found
            .first()
            .map_or(0, |row| row.get::<_, i64>(0))
            .unsigned_abs())
    }

    async fn estimate_events(
        &self,
        actor: &Actor,
        filter: &EventFilter,
    ) -> Result<Count, AdminError> {
        estimate::events(self, actor, filter).await
    }

    async fn find_event(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        if let Some(near) = self.find_event_near(actor, id).await? {
            return Ok(Some(near));
        }
        let (text, tenant) = (id.to_string(), actor.tenant());
        let skew = RequestSeek::SKEW;
        let since = Moment(Timestamp::from_millis(id.time().as_millis() - millis(skew)));
        let until = Moment(id.time().after(skew));
        let around = (id_at(self, since).await?, id_at(self, until).await?);
        for (low, high) in [around, (i64::MIN, i64::MAX)] {
            let params: [&dyn Param; 4] = [&text, &low, &high, &tenant];
            let found = self.ask(query!("admin/find_event"), &params).await?;
            if let Some(row) = found.first() {
                return Ok(Some(outbox::shown(row, self.keyring())?));
            }
        }
        Ok(None)
    }

    async fn find_event_near(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        let (text, tenant) = (id.to_string(), actor.tenant());
        let middle = id_at(self, Moment(id.time())).await?;
        let params: [&dyn Param; 4] = [&text, &middle, &LOOK_NEAR, &tenant];
        let sql = query!("admin/find_event_near");
        let found = self.ask(sql, &params).await?;
        Ok(shown(self, found.first())?)
    }

    async fn event_at(
        &self,
        actor: &Actor,
        position: i64,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        let params: [&dyn Param; 2] = [&position, &actor.tenant()];
        let found = self.ask(query!("admin/event"), &params).await?;
        Ok(shown(self, found.first())?)
    }

    async fn traces(&self, positions: &[i64]) -> Result<HashMap<i64, Vec<Trace>>, AdminError> {
        let positions = positions.to_vec();
        let found = self.ask(query!("admin/trace"), &[&positions]).await?;
        let at = found.iter().map(|row| (row.get("id"), row.get("name")));
        let at: Vec<(i64, &str)> = at.collect();
        let mut logs: HashMap<(i64, String), Vec<Attempt>> = HashMap::new();
        for (partition, attempt) in attempts(self, &at).await? {
            let log = logs.entry((attempt.position, partition)).or_default();
            log.push(attempt);
        }
        let mut traces: HashMap<i64, Vec<Trace>> = HashMap::new();
        for row in &found {
            let of = (row.get("id"), row.get("name"));
            let log = logs.remove(&of).unwrap_or_default();
            let (position, partition) = of;
            traces
                .entry(position)
                .or_default()
                .push(traced(row, self.keyring(), partition, log));
        }
        Ok(traces)
    }
}

fn shown(store: &Postgres, row: Option<&Row>) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
    row.map(|row| outbox::shown(row, store.keyring()))
        .transpose()
}

fn traced(row: &Row, keyring: &Keyring, partition: String, log: Vec<Attempt>) -> Trace {
    let state: Option<&str> = row.get("state");
    let status = DeliveryStatus::of(state, !log.is_empty(), row.get("is_read"));
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Trace {
        destination: destination_of(&partition).to_owned(),
        partition,
        status,
        attempts: row
            .get::<_, Option<i32>>("attempt")
            .unwrap_or(0)
            .unsigned_abs(),
        next_at: moment("next_at").filter(|_| status.is_due()),
        last_error: row.get("last_error"),
        reason: row.get("reason"),
        behind: row.get("behind"),
        changed_at: moment("changed_at"),
        edited: row.get::<_, Option<String>>("payload").and_then(|payload| {
            let id = row.get::<_, &str>("event_id").parse().ok()?;
            let headers = row.get::<_, Option<&str>>("headers").unwrap_or("{}");
            // A payload that cannot be decrypted here is shown as it is stored.
            let raw = || Payload::Json(serde_json::Value::String(payload.clone()).to_string());
            let read = decode_columns(id, headers, payload.clone(), keyring);
            Some(read.map_or_else(|_| raw(), |(_, payload)| payload))
        }),
        log,
    }
}

/// The position of the event whose id the filter contains, if it is near the time in the id.
pub(super) async fn place_of(
    store: &Postgres,
    actor: &Actor,
    filter: &EventFilter,
) -> Result<Option<i64>, AdminError> {
    let Some(id) = filter.event_id else {
        return Ok(None);
    };
    let near = store.find_event_near(actor, id).await?;
    Ok(near.map(|event| event.position))
}

/// The positions between which the events of a filter are.
pub(super) async fn bounds(
    store: &Postgres,
    actor: &Actor,
    filter: &EventFilter,
) -> Result<(i64, i64), AdminError> {
    match place_of(store, actor, filter).await? {
        Some(position) => Ok(only(position, filter)),
        None => Ok(window(store, filter).await?),
    }
}

/// The positions between which only the event at `position` is; none if the filter excludes it.
fn only(position: i64, filter: &EventFilter) -> (i64, i64) {
    let low = position.max(filter.position_min());
    (low, position.saturating_add(1))
}

/// The positions between which the events of a filter's window of time are, after the filter's
/// position.
pub(super) async fn window(
    store: &Postgres,
    filter: &EventFilter,
) -> Result<(i64, i64), StoreError> {
    let mut bounds = (i64::MIN, i64::MAX);
    if let Some(since) = filter.since {
        let since = since.as_millis().saturating_sub(millis(RequestSeek::SKEW));
        bounds.0 = id_at(store, Moment(Timestamp::from_millis(since))).await?;
    }
    if let Some(until) = filter.until {
        bounds.1 = id_at(store, Moment(until.after(RequestSeek::SKEW))).await?;
    }
    bounds.0 = bounds.0.max(filter.position_min());
    Ok(bounds)
}

pub(super) async fn id_at(store: &Postgres, moment: Moment) -> Result<i64, StoreError> {
    // The database cannot represent times far outside of this range.
    const YEARS: i64 = 4_000 * 365 * 24 * 3_600 * 1_000;
    let moment = Moment(Timestamp::from_millis(
        moment.0.as_millis().clamp(-YEARS / 10, YEARS),
    ));
    let found = store.ask(query!("admin/id_at"), &[&moment]).await?;
    Ok(found.first().map_or(0, |row| row.get(0)))
}

pub(super) fn millis(duration: Duration) -> i64 {
    crate::value::millis(duration)
}

fn summary(row: &Row) -> EventSummary {
    EventSummary {
        position: row.get("id"),
        id: row.get("event_id"),
        kind: row.get("type"),
        tenant: row.get("tenant"),
        aggregate_type: row.get("aggregate_type"),
        aggregate_id: row.get("aggregate_id"),
        created_at: row.get::<_, Moment>("created_at").0,
        available_at: row.get::<_, Option<Moment>>("available_at").map(|it| it.0),
        payload_bytes: row.get::<_, i64>("payload_bytes").unsigned_abs(),
    }
}
