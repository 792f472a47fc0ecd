//! Effects of a settlement: the columns of its deliveries, attempts and order keys, and the
//! statements that write them.

use std::collections::BTreeMap;

use hapax::{
    delivery::{Attempt, Park, ParkedState, Settlement},
    outbox::BuiltEvent,
};

use super::{Statements, arrivals::Arrivals, text};
use crate::{
    connection::{Link, Ready},
    emit::Columns,
    session::QueuedStatement,
    value::{Moment, Param, millis},
};

/// The columns of everything that a settlement changes besides the checkpoint.
pub(super) struct Effects<'a> {
    destination: &'a str,
    now: Moment,
    /// The attempts that begin, with their numbers.
    begun: (Vec<i64>, Vec<i32>),
    parks: Parks<'a>,
    delivered: &'a Vec<i64>,
    released: Vec<&'a str>,
    /// The released keys, and those of deliveries that are to be blocked although nothing blocks
    /// them: such a delivery is released at once.
    lowered: Vec<&'a str>,
    attempts: Attempts<'a>,
    arrivals: Arrivals,
    reason: Option<String>,
    /// Operational events.
    reported: Columns<'a>,
}

/// The parameters of the statements.
pub(super) struct EffectParams<'a> {
    effects: &'a Effects<'a>,
    begun: [&'a dyn Param; 4],
    parked: [&'a dyn Param; 8],
    delivered: [&'a dyn Param; 3],
    attempts: [&'a dyn Param; 9],
    arrivals: [&'a dyn Param; 7],
    disabled: [&'a dyn Param; 3],
    lowered: [&'a dyn Param; 3],
    held: [&'a dyn Param; 2],
    reported: [&'a dyn Param; 10],
}

impl<'a> Effects<'a> {
    pub(super) fn of(settlement: &'a Settlement, reported: &'a [BuiltEvent], now: Moment) -> Self {
        let reported: Vec<&BuiltEvent> = reported.iter().collect();
        let parks = Parks::of(&settlement.park);
        let released: Vec<&str> = settlement.release.iter().map(String::as_str).collect();
        let lowered = released.iter().chain(&parks.blocked).copied().collect();
        Self {
            destination: &settlement.destination,
            now,
            begun: begun(&settlement.begin),
            parks,
            delivered: &settlement.delivered,
            released,
            lowered,
            attempts: Attempts::of(&settlement.attempts),
            arrivals: Arrivals::of(&settlement.arrived),
            reason: settlement.disable.as_deref().map(text),
            reported: Columns::of(&reported),
        }
    }

    pub(super) fn params(&self) -> EffectParams<'_> {
        let (destination, now) = (&self.destination, &self.now);
        EffectParams {
            effects: self,
            begun: [destination, &self.begun.0, &self.begun.1, now],
            parked: self.parks.params(destination, now),
            delivered: [destination, self.delivered, now],
            attempts: self.attempts.params(destination),
            arrivals: self.arrivals.params(destination),
            disabled: [destination, now, &self.reason],
            lowered: [destination, &self.lowered, now],
            held: [destination, &self.released],
            reported: self.reported.params(),
        }
    }
}

impl EffectParams<'_> {
    /// The statements that have rows to write, in order. The keys that are still blocked are queried
    /// last, so that the caller finds them just before `COMMIT`.
    pub(super) fn queue<'q>(
        &'q self,
        link: &'q Link,
        statements: &'q Statements,
    ) -> Vec<QueuedStatement<'q>> {
        let effects = self.effects;
        let all: [(bool, &Ready, &[&dyn Param]); 9] = [
            (!effects.begun.0.is_empty(), &statements.begin, &self.begun),
            (
                !effects.parks.positions.is_empty(),
                &statements.park,
                &self.parked,
            ),
            (
                !effects.delivered.is_empty(),
                &statements.deliver,
                &self.delivered,
            ),
            (
                !effects.attempts.is_empty(),
                &statements.attempt,
                &self.attempts,
            ),
            (
                !effects.arrivals.is_empty(),
                &statements.arrival,
                &self.arrivals,
            ),
            (
                effects.reason.is_some(),
                &statements.disable,
                &self.disabled,
            ),
            (
                !effects.reported.is_empty(),
                &statements.emit,
                &self.reported,
            ),
            (
                !effects.lowered.is_empty(),
                &statements.release,
                &self.lowered,
            ),
            (
                !effects.released.is_empty(),
                &statements.is_held,
                &self.held,
            ),
        ];
        let mut queued: Vec<QueuedStatement<'q>> = Vec::new();
        for (is_wanted, ready, params) in all {
            if is_wanted {
                queued.push(Box::pin(link.rows(ready, params)));
            }
        }
        queued
    }
}

/// The attempts that begin: each position once, in order, with the number of its attempt.
fn begun(begin: &[(i64, u32)]) -> (Vec<i64>, Vec<i32>) {
    let once: BTreeMap<i64, u32> = begin.iter().copied().collect();
    once.into_iter()
        .map(|(position, number)| (position, number.cast_signed()))
        .unzip()
}

/// Parked deliveries as the columns of `delivery/park`. Of two for the same event the last is used.
struct Parks<'a> {
    positions: Vec<i64>,
    states: Vec<&'static str>,
    attempts: Vec<i32>,
    due: Vec<Moment>,
    keys: Vec<Option<&'a str>>,
    errors: Vec<Option<String>>,
    /// The order keys of deliveries that are to be blocked.
    blocked: Vec<&'a str>,
}

impl<'a> Parks<'a> {
    fn of(parks: &'a [Park]) -> Self {
        let parks: BTreeMap<i64, &Park> = parks.iter().map(|park| (park.position, park)).collect();
        let all = || parks.values();
        Self {
            positions: all().map(|park| park.position).collect(),
            states: all().map(|park| park.state.name()).collect(),
            attempts: all().map(|park| park.attempt.cast_signed()).collect(),
            due: all().map(|park| Moment(park.next_at)).collect(),
            keys: all().map(|park| park.order_key.as_deref()).collect(),
            errors: all()
                .map(|park| park.last_error.as_deref().map(text))
                .collect(),
            blocked: all()
                .filter(|park| park.state == ParkedState::Blocked)
                .filter_map(|park| park.order_key.as_deref())
                .collect(),
        }
    }

    fn params<'b>(&'b self, destination: &'b &'b str, now: &'b Moment) -> [&'b dyn Param; 8] {
        [
            destination,
            &self.positions,
            &self.states,
            &self.attempts,
            &self.due,
            &self.keys,
            &self.errors,
            now,
        ]
    }
}

/// Attempts as the columns of `delivery/attempt`.
struct Attempts<'a> {
    positions: Vec<i64>,
    numbers: Vec<i32>,
    started: Vec<Moment>,
    durations: Vec<i64>,
    outcomes: Vec<&'static str>,
    statuses: Vec<Option<i16>>,
    errors: Vec<Option<String>>,
    heads: Vec<&'a [u8]>,
}

impl<'a> Attempts<'a> {
    fn of(attempts: &'a [Attempt]) -> Self {
        let all = || attempts.iter();
        Self {
            positions: all().map(|it| it.position).collect(),
            numbers: all().map(|it| it.number.cast_signed()).collect(),
            started: all().map(|it| Moment(it.started_at)).collect(),
            durations: all().map(|it| millis(it.duration)).collect(),
            outcomes: all().map(|it| it.outcome.as_str()).collect(),
            statuses: all()
                .map(|it| it.status.and_then(|status| i16::try_from(status).ok()))
                .collect(),
            errors: all().map(|it| it.error.as_deref().map(text)).collect(),
            heads: all().map(|it| &*it.response_head).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn params<'b>(&'b self, destination: &'b &'b str) -> [&'b dyn Param; 9] {
        [
            destination,
            &self.positions,
            &self.numbers,
            &self.started,
            &self.durations,
            &self.outcomes,
            &self.statuses,
            &self.errors,
            &self.heads,
        ]
    }
}
