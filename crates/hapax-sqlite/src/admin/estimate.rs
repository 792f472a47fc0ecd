//! Estimated number of events that match a filter: the share of the newest events that match, times
//! the number of positions in the filter's window of time.
//!
//! Positions have no gaps, except for events that were purged before others and for transactions that
//! were rolled back.

use std::ops::ControlFlow;

use hapax::admin::{AdminError, Count};

use super::{filters::Filters, view::View};
use crate::query;

/// Events that are read. This takes some tens of milliseconds.
const LOOK: u64 = 10_000;

/// Estimates how many events match between two positions.
pub(super) fn events(
    view: &View<'_>,
    find: &Filters,
    (low, high): (i64, i64),
) -> Result<Count, AdminError> {
    let (mut looked, mut number, mut last) = (0, 0, None);
    view.visit(query!("admin/events"), [high, low], |row| {
        last = last.or(Some(row.get("id")?));
        number += u64::from(find.event(row)?);
        looked += 1;
        let is_over = looked == LOOK;
        Ok(if is_over {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    let first = view.first(query!("admin/id_at"), [low], |row| row.get("id"))?;
    let positions = last.zip(first).map_or(0, |(last, first): (i64, i64)| {
        last.saturating_sub(first).saturating_add(1).unsigned_abs()
    });
    Ok(Count::of_sample(number, looked, LOOK, positions))
}
