//! Estimated number of events that match a filter: the share of the newest events that match, times
//! the number of ids in the filter's window of time.
//!
//! Ids are drawn from a sequence, so their range is close to the number of events, except for
//! transactions that were rolled back.

use hapax::admin::{Actor, AdminError, Count, CountKind, EventFilter};
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
    estimated(number("looked"), number("number"), number("ids"))
}

/// The estimate, if `number` of the `looked` newest events match and there are about `ids` of them.
fn estimated(looked: u64, number: u64, ids: u64) -> Count {
    if looked < LOOK.unsigned_abs() {
        let kind = CountKind::Exact;
        return Count { number, kind };
    }
    if number == 0 {
        // Older events may match.
        let kind = CountKind::AtLeast;
        return Count { number, kind };
    }
    let all = u128::from(number) * u128::from(ids) / u128::from(looked);
    Count {
        number: u64::try_from(all).unwrap_or(u64::MAX).max(number),
        kind: CountKind::About,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_exact_if_everything_was_read_and_never_says_that_there_are_none() {
        let of = |number, kind| Count { number, kind };
        assert_eq!(estimated(9_999, 7, 12_000), of(7, CountKind::Exact));
        assert_eq!(estimated(10_000, 0, 1_000_000), of(0, CountKind::AtLeast));
        let third = estimated(10_000, 3_300, 10_000_000);
        assert_eq!(third, of(3_300_000, CountKind::About));
        assert_eq!(estimated(10_000, 10_000, 50), of(10_000, CountKind::About));
    }
}
