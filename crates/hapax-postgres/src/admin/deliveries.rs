//! Deliveries that have a row: parked, dead, or finished after they were parked.
//!
//! An event that was delivered at the first attempt has no such row; its trace shows that attempt.

use hapax::Timestamp;
use tokio_postgres::Row;

use super::{
    Actor, AdminError, Filter, PAGE_MAX, Page, destinations, events::DeliveryStatus,
    filters::Filters,
};
use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Rows that one page reads.
const LOOK: usize = 2_000;
/// Rows that a page reads per row that it shows if the filter matches everything. It is more than
/// one because the event of a finished delivery may be deleted.
const SPARE: usize = 4;
const PARKED: [DeliveryStatus; 3] = [
    DeliveryStatus::Scheduled,
    DeliveryStatus::Retrying,
    DeliveryStatus::Blocked,
];

/// One delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The partition under which it is stored.
    pub partition: String,
    /// The position of the event.
    pub position: i64,
    /// The state, as in its row.
    pub state: String,
    /// Attempts made since it was parked or replayed.
    pub attempts: u32,
    /// When it is due, or was due.
    pub next_at: Timestamp,
    /// The order key that it blocks.
    pub order_key: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// When the row was last changed; for a dead letter, when it died.
    pub changed_at: Timestamp,
    /// Why it was discarded.
    pub reason: Option<String>,
    /// The id of the event.
    pub event_id: String,
    /// The type of the event.
    pub kind: String,
    /// The tenant of the event.
    pub tenant: Option<String>,
    /// The type of the aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    pub aggregate_id: Option<String>,
    /// When the event was created.
    pub created_at: Timestamp,
}

/// The start of a page of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The page contains deliveries of events below this position,
    pub position: i64,
    /// and those at this position whose partition sorts before this one.
    pub partition: String,
}

/// Lists deliveries that match a filter, the newest event first: in these states, or in any state
/// if `states` is empty; of one destination, or of all.
///
/// # Errors
/// `Invalid` for a state in which deliveries have no row.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
    destination: Option<&str>,
    states: &[DeliveryStatus],
    before: Option<&Cursor>,
    limit: usize,
) -> Result<Page<Delivery, Cursor>, AdminError> {
    let states = if states.is_empty() { ALL } else { states };
    if states.iter().any(|state| !ALL.contains(state)) {
        return Err(AdminError::invalid(
            "state",
            "must be one in which deliveries have a row",
        ));
    }
    let Some(find) = Filters::of(actor, filter) else {
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    };
    let partitions = destinations::partitions(store, destination).await?;
    let partitions: Vec<String> = partitions
        .into_iter()
        .map(|partition| partition.name)
        .collect();
    let is_dead = states == [DeliveryStatus::Dead];
    let is_parked = states.iter().all(|state| PARKED.contains(state));
    let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let limit = limit.clamp(1, PAGE_MAX);
    let every = match (is_dead, is_parked) {
        (true, _) => &[DeliveryStatus::Dead][..],
        (_, true) => &PARKED[..],
        _ => ALL,
    };
    let is_all = every.iter().all(|state| states.contains(state));
    let look = if is_all && find.is_any() {
        LOOK.min(limit * SPARE)
    } else {
        LOOK
    };
    let (count, look) = (rows(limit), rows(look.max(limit)));
    let before_position = before.map_or(i64::MAX, |it| it.position);
    let before_partition = before.map_or("", |it| it.partition.as_str());
    let behind: [&dyn Param; 8] = [
        &partitions,
        &find.attempts_min,
        &find.error,
        &before_position,
        &before_partition,
        &look,
        &count,
        &words,
    ];
    let params = find.with(&behind);
    let sql = match (is_dead, is_parked) {
        (true, _) => query!("admin/dead"),
        (_, true) => query!("admin/parked"),
        _ => query!("admin/deliveries"),
    };
    let found = store.ask(sql, &params).await?;
    let matching = found
        .iter()
        .filter(|row| row.get::<_, Option<&str>>("destination").is_some());
    let items: Vec<Delivery> = matching.map(delivery).collect();
    let full = items.last().filter(|_| items.len() == limit);
    let next = next(full, found.first(), look);
    Ok(Page { items, next })
}

/// Where the next page begins: after the last delivery of a full page, or after the last row that
/// was searched, if the search ended at its limit. `first` is the first row of the page.
fn next(full: Option<&Delivery>, first: Option<&Row>, look: i64) -> Option<Cursor> {
    if let Some(last) = full {
        return Some(Cursor {
            position: last.position,
            partition: last.partition.clone(),
        });
    }
    let row = first.filter(|row| row.get::<_, i64>("looked") == look)?;
    Some(Cursor {
        position: row.get("end_position"),
        partition: row.get("end_destination"),
    })
}

/// All states in which a delivery has a row.
const ALL: &[DeliveryStatus] = &[
    DeliveryStatus::Scheduled,
    DeliveryStatus::Retrying,
    DeliveryStatus::Blocked,
    DeliveryStatus::Dead,
    DeliveryStatus::Delivered,
    DeliveryStatus::Discarded,
];

fn delivery(row: &Row) -> Delivery {
    Delivery {
        partition: row.get("destination"),
        position: row.get("position"),
        state: row.get("state"),
        attempts: row.get::<_, i32>("attempt").unsigned_abs(),
        next_at: row.get::<_, Moment>("next_at").0,
        order_key: row.get("order_key"),
        last_error: row.get("last_error"),
        changed_at: row.get::<_, Moment>("changed_at").0,
        reason: row.get("reason"),
        event_id: row.get("event_id"),
        kind: row.get("type"),
        tenant: row.get("tenant"),
        aggregate_type: row.get("aggregate_type"),
        aggregate_id: row.get("aggregate_id"),
        created_at: row.get::<_, Moment>("created_at").0,
    }
}
