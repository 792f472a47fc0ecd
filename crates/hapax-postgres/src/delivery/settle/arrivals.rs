//! Rows for events that were delivered at the first attempt.
//!
//! Each row contains a run of positions that spans at most `SPAN`. The row of a position is
//! therefore found by searching no more than that far below it.

use std::collections::BTreeSet;

use hapax::delivery::{Arrived, positions};

use crate::value::{Moment, Param, millis};

/// Maximum distance between the first and the last position of a row, plus one.
const SPAN: i64 = 1 << 13;
/// Number of bits of a position below its turn. All positions of a row have the same turn, so that
/// the row can be deleted with it.
const ROTATION_BITS: u32 = 36;

/// Successful first attempts as the columns of `delivery/arrival`.
pub(super) struct Arrivals {
    positions: Vec<String>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    started: Vec<Moment>,
    durations: Vec<i64>,
    statuses: Vec<Option<i16>>,
}

impl Arrivals {
    pub(super) fn of(arrived: &[Arrived]) -> Self {
        let mut runs: Vec<(BTreeSet<i64>, &Arrived)> = Vec::new();
        for batch in arrived {
            runs.extend(split(&batch.positions).map(|run| (run, batch)));
        }
        // A statement can write a row only once. Batches that were offered at the same time have no
        // position in common.
        runs.sort_by_key(|(run, batch)| (run.first().copied(), batch.started_at));
        runs.dedup_by_key(|(run, batch)| (run.first().copied(), batch.started_at));
        let all = || runs.iter();
        Self {
            positions: all().map(|(run, _)| positions::write(run)).collect(),
            firsts: all().filter_map(|(run, _)| run.first().copied()).collect(),
            lasts: all().filter_map(|(run, _)| run.last().copied()).collect(),
            started: all().map(|(_, it)| Moment(it.started_at)).collect(),
            durations: all().map(|(_, it)| millis(it.duration)).collect(),
            statuses: all()
                .map(|(_, it)| it.status.and_then(|status| i16::try_from(status).ok()))
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.firsts.is_empty()
    }

    pub(super) fn params<'a>(&'a self, destination: &'a &'a str) -> [&'a dyn Param; 7] {
        [
            destination,
            &self.positions,
            &self.firsts,
            &self.lasts,
            &self.started,
            &self.durations,
            &self.statuses,
        ]
    }
}

/// Splits positions into the runs of single rows.
fn split(positions: &BTreeSet<i64>) -> impl Iterator<Item = BTreeSet<i64>> {
    let mut next = positions.first().copied();
    std::iter::from_fn(move || {
        let first = next?;
        let reach = first
            .saturating_add(SPAN - 1)
            .min(first | ((1 << ROTATION_BITS) - 1));
        next = positions.range(reach.checked_add(1)?..).next().copied();
        Some(positions.range(first..=reach).copied().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_ends_where_its_span_or_its_turn_does() {
        let rotation = 1 << ROTATION_BITS;
        check(&[], &[]);
        check(&[1, 2, 8_192, 8_193], &[&[1, 2, 8_192], &[8_193]]);
        check(
            &[rotation - 1, rotation, rotation + 1],
            &[&[rotation - 1], &[rotation, rotation + 1]],
        );
        check(&[7, 3 * rotation], &[&[7], &[3 * rotation]]);
    }

    #[track_caller]
    fn check(positions: &[i64], rows: &[&[i64]]) {
        let split: Vec<Vec<i64>> = split(&positions.iter().copied().collect())
            .map(|run| run.into_iter().collect())
            .collect();
        assert_eq!(split, rows);
    }
}
