//! Queries for events: by a filter, by id, and by position.
//!
//! There is no index for these queries, because the writer would maintain it for every event.
//! Positions increase with time, so the position of a point in time is found by binary search. The
//! clock may have been off by [`RequestSeek::SKEW`]. If it was further off, a list for a window of
//! time and `find_event_near` may miss events. `find_event` does not miss any: it reads all events
//! before it reports that there is none.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Count, EventAdmin, EventFilter, EventSummary, PAGE_MAX, Page,
        RequestSeek, Trace, read_cursor,
    },
    event::EventId,
    outbox::OutboxEvent,
};
use rusqlite::{Params, Row, params};

use super::{
    declared::{moment, optional_moment},
    estimate,
    filters::Filters,
    handle::SqliteAdmin,
    traces,
    view::View,
};
use crate::{delivery::start, error::store_error, outbox, query, value::rows};

/// Events that one page reads. This takes some tens of milliseconds.
const LOOK: usize = 20_000;
/// Bytes of payloads beyond which a page reads no further event: what follows a payload in its row
/// is found by reading all pages of the payload.
const LOOK_BYTES: u64 = 64 * 1024 * 1024;
/// Events that are read on either side of a point in time to find one that was created about then.
const LOOK_NEAR: usize = 20_000;

#[async_trait]
impl EventAdmin for SqliteAdmin {
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
        let (actor, filter) = (actor.clone(), filter.clone());
        let limit = limit.clamp(1, PAGE_MAX);
        let list = move |view: &View<'_>| -> Result<Page<EventSummary>, AdminError> {
            if before.is_none()
                && let Some(position) = place_of(view, &actor, &filter)?
            {
                let only = only(position, &filter);
                return Ok(Page::last(page(view, &find, only, limit)?.items));
            }
            let (low, high) = window(view, &filter)?;
            let high = before.map_or(high, |before| before.min(high));
            page(view, &find, (low, high), limit)
        };
        self.read(list).await
    }

    async fn count_events(&self, actor: &Actor, filter: &EventFilter) -> Result<u64, AdminError> {
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(0);
        };
        let (actor, filter) = (actor.clone(), filter.clone());
        let count = move |view: &View<'_>| -> Result<u64, AdminError> {
            let (low, high) = match place_of(view, &actor, &filter)? {
                Some(position) => only(position, &filter),
                None => window(view, &filter)?,
            };
            let mut count = 0;
            view.visit(query!("admin/events"), [high, low], |row| {
                count += u64::from(find.event(row)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(count)
        };
        self.read(count).await
    }

    async fn estimate_events(
        &self,
        actor: &Actor,
        filter: &EventFilter,
    ) -> Result<Count, AdminError> {
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(Count::default());
        };
        let (actor, filter) = (actor.clone(), filter.clone());
        let estimate = move |view: &View<'_>| -> Result<Count, AdminError> {
            let bounds = match place_of(view, &actor, &filter)? {
                Some(position) => only(position, &filter),
                None => window(view, &filter)?,
            };
            estimate::events(view, &find, bounds)
        };
        self.read(estimate).await
    }

    async fn find_event(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        let actor = actor.clone();
        self.read(move |view| find(view, &actor, id)).await
    }

    async fn find_event_near(
        &self,
        actor: &Actor,
        id: EventId,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        let actor = actor.clone();
        self.read(move |view| find_near(view, &actor, id)).await
    }

    async fn event_at(
        &self,
        actor: &Actor,
        position: i64,
    ) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
        let tenant = actor.tenant().map(str::to_owned);
        let event = move |view: &View<'_>| {
            let params = params![position, tenant];
            first(view, query!("admin/event"), params)
        };
        self.read(event).await
    }

    async fn traces(&self, positions: &[i64]) -> Result<HashMap<i64, Vec<Trace>>, AdminError> {
        let positions = positions.to_vec();
        self.read(move |view| traces::of(view, &positions)).await
    }
}

/// Lists matching events between two positions, the newest first.
fn page(
    view: &View<'_>,
    find: &Filters,
    (low, high): (i64, i64),
    limit: usize,
) -> Result<Page<EventSummary>, AdminError> {
    let (mut items, mut next, mut looked, mut bytes) = (Vec::new(), None, 0, 0_u64);
    view.visit(query!("admin/events"), [high, low], |row| {
        looked += 1;
        if find.event(row)? {
            items.push(summary(row)?);
        }
        bytes += row.get::<_, i64>("payload_bytes")?.unsigned_abs();
        if items.len() == limit || looked == LOOK || bytes >= LOOK_BYTES {
            next = Some(row.get::<_, i64>("id")?.to_string());
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Page { items, next })
}

fn find(
    view: &View<'_>,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
    if let Some(near) = find_near(view, actor, id)? {
        return Ok(Some(near));
    }
    let skew = RequestSeek::SKEW;
    let around = (
        id_at(view, before(id.time(), skew))?,
        id_at(view, id.time().after(skew))?,
    );
    for (low, high) in [around, (i64::MIN, i64::MAX)] {
        let params = params![id.to_string(), low, high, actor.tenant()];
        let found = first(view, query!("admin/find_event"), params)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn find_near(
    view: &View<'_>,
    actor: &Actor,
    id: EventId,
) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
    let middle = id_at(view, id.time())?;
    let params = params![id.to_string(), middle, rows(LOOK_NEAR), actor.tenant()];
    first(view, query!("admin/find_event_near"), params)
}

fn first(
    view: &View<'_>,
    sql: &str,
    params: impl Params,
) -> Result<Option<Arc<OutboxEvent>>, AdminError> {
    let found = view.first(sql, params, |row| Ok(outbox::shown(row, view.keyring)))?;
    Ok(found.transpose()?)
}

/// The position of the event whose id the filter contains, if it is near the time in the id.
pub(super) fn place_of(
    view: &View<'_>,
    actor: &Actor,
    filter: &EventFilter,
) -> Result<Option<i64>, AdminError> {
    let Some(id) = filter.event_id else {
        return Ok(None);
    };
    let near = find_near(view, actor, id)?;
    Ok(near.map(|event| event.position))
}

/// The positions between which only the event at `position` is; none if the filter excludes it.
fn only(position: i64, filter: &EventFilter) -> (i64, i64) {
    let low = position.max(filter.position_min());
    (low, position.saturating_add(1))
}

/// The positions between which the events of a filter's window of time are, after the filter's
/// position.
pub(super) fn window(view: &View<'_>, filter: &EventFilter) -> Result<(i64, i64), AdminError> {
    let mut bounds = (i64::MIN, i64::MAX);
    if let Some(since) = filter.since {
        bounds.0 = id_at(view, before(since, RequestSeek::SKEW))?;
    }
    if let Some(until) = filter.until {
        bounds.1 = id_at(view, until.after(RequestSeek::SKEW))?;
    }
    bounds.0 = bounds.0.max(filter.position_min());
    Ok(bounds)
}

/// The position, approximately, of the first event that was created at or after a time.
pub(super) fn id_at(view: &View<'_>, time: Timestamp) -> Result<i64, AdminError> {
    view.with(|conn| start::id_at(conn, time).map_err(store_error))
}

/// The time before another one, at least the earliest possible one.
pub(super) fn before(time: Timestamp, wait: Duration) -> Timestamp {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.as_millis().saturating_sub(wait))
}

fn summary(row: &Row<'_>) -> rusqlite::Result<EventSummary> {
    Ok(EventSummary {
        position: row.get("id")?,
        id: row.get("event_id")?,
        kind: row.get("type")?,
        tenant: row.get("tenant")?,
        aggregate_type: row.get("aggregate_type")?,
        aggregate_id: row.get("aggregate_id")?,
        created_at: moment(row, "created_at")?,
        available_at: optional_moment(row, "available_at")?,
        payload_bytes: row.get::<_, i64>("payload_bytes")?.unsigned_abs(),
    })
}
