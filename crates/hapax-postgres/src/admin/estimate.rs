//! Estimated number of events that match a filter: the share of the newest events that match, times
//! the number of ids in the filter's window of time.
//!
//! Ids are drawn from a sequence, so their range is close to the number of events, except for
//! transactions that were rolled back.

use hapax::admin::{Actor, AdminError, Count, EventFilter};
use tokio_postgres::Row;

use super::{events, filters::Filters};
use crate::{postgres::Postgres, query};

/// Events that are read. This takes some tens of milliseconds.
const LOOK: i64 = 10_000;

/// Estimates how many events match.
pub(super) async fn events(
    store: &Postgres,
    actor: &Actor,
    filter: &EventFilter,
) -> Result<Count, AdminError> {
    let Some(find) = Filters::of(actor, filter) else {
        return Ok(Count::default());
    };
    let (low, high) = events::bounds(store, actor, filter).await?;
    let params = find.with(&[&high, &low, &LOOK]);
    let found = store.ask(query!("admin/estimate_events"), &params).await?;
    Ok(found.first().map_or_else(Count::default, of_row))
}

fn of_row(row: &Row) -> Count {
    let number = |column| row.get::<_, i64>(column).unsigned_abs();
    let (looked, bound) = (number("looked"), LOOK.unsigned_abs());
    Count::of_sample(number("number"), looked, bound, number("ids"))
}
