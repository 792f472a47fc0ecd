//! Figures for a first look: what was committed and delivered lately, what waits, what is dead.
//!
//! The cost does not grow with what is stored: everything is counted along an index, up to a bound,
//! and what lies beyond is estimated or left open, and says so.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::try_join;
use hapax::{Timestamp, saga::State};

use super::{
    Actor, OperateError,
    declared::moment,
    destination_of, events, keys,
    now::{self, PartNow},
    stalled::{self, Stalled},
};
use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// When it was looked at, by the database's clock.
    pub at: Timestamp,
    /// How far back "lately" goes.
    pub window: Duration,
    /// Events that were committed lately.
    pub committed: Count,
    /// Deliveries that arrived lately.
    pub delivered: Count,
    /// Attempts that failed lately.
    pub failed: Count,
    /// Each destination, by name.
    pub destinations: Vec<DestinationFigures>,
    /// Keys that were claimed lately, by how they stand now.
    pub keys: Vec<(keys::State, Count)>,
    /// Keys that are stored, as far as the database has counted them: of one tenant nobody has.
    pub keys_stored: Option<Count>,
    /// Sagas, by how they stand.
    pub sagas: Vec<(State, Count)>,
}

/// One destination's figures, over all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFigures {
    /// The destination.
    pub name: String,
    /// Events that are not settled.
    pub backlog: Count,
    /// How old the oldest of them is.
    pub lag: Option<Duration>,
    /// Deliveries that wait outside the flow.
    pub parked: Count,
    /// Dead letters.
    pub dead: Count,
    /// Deliveries that arrived lately.
    pub delivered: Count,
    /// Attempts that failed lately.
    pub failed: Count,
}

/// How many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number.
    pub number: u64,
    /// How it was come by.
    pub kind: CountKind,
}

/// How a number was come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountKind {
    /// It was counted.
    #[default]
    Exact,
    /// It was counted up to a bound: there are at least so many.
    AtLeast,
    /// It was estimated.
    About,
}

/// How far back "lately" goes.
const WINDOW: Duration = Duration::from_mins(1);
/// Rows that are looked at of a kind: a page is to take some tens of milliseconds, however busy the
/// database is. What happened lately beyond them is estimated from their rate, to a few per cent.
const ROWS: i64 = 2_000;

/// Reads the figures: three short statements, however much is stored.
///
/// An actor of a tenant is told of its own events, keys and sagas, and of the destinations that take
/// its events alone.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn overview(store: &Postgres, actor: &Actor) -> Result<Overview, OperateError> {
    let parts = now::parts(store, actor).await?;
    of_parts(store, actor, &parts).await
}

/// Reads the figures, and says what stands still, by one look at the parts.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn with_stalled(
    store: &Postgres,
    actor: &Actor,
) -> Result<(Overview, Vec<Stalled>), OperateError> {
    let parts = now::parts(store, actor).await?;
    // Neither needs what the other reads.
    let figures = of_parts(store, actor, &parts);
    try_join(figures, stalled::of_parts(store, actor, &parts)).await
}

async fn of_parts(
    store: &Postgres,
    actor: &Actor,
    parts: &[PartNow],
) -> Result<Overview, OperateError> {
    let at = store.now().0;
    let lately = Lately::read(store, actor, at, parts).await?;
    let (sagas, keys_stored) = stored(store, actor).await?;
    let mut destinations: Vec<DestinationFigures> = Vec::new();
    for part in parts {
        let name = destination_of(&part.name);
        if destinations.last().is_none_or(|last| last.name != name) {
            destinations.push(DestinationFigures::new(name));
        }
        if let Some(figures) = destinations.last_mut() {
            figures.add(part);
            figures
                .delivered
                .add(of_part(&lately.delivered, &part.name));
            figures.failed.add(of_part(&lately.failed, &part.name));
        }
    }
    let sum = |of: fn(&DestinationFigures) -> Count| {
        let mut sum = Count::default();
        for figures in &destinations {
            sum.add(of(figures));
        }
        sum
    };
    let (delivered, failed) = (sum(|it| it.delivered), sum(|it| it.failed));
    Ok(Overview {
        at,
        window: WINDOW,
        committed: lately.committed,
        delivered,
        failed,
        destinations,
        keys: lately.keys,
        keys_stored,
        sagas,
    })
}

impl Count {
    /// What was counted among rows of which so many were looked at.
    fn of(number: u64, looked: i64, bound: i64) -> Self {
        let kind = if looked < bound {
            CountKind::Exact
        } else {
            CountKind::AtLeast
        };
        Self { number, kind }
    }

    /// What was counted among the latest rows of a window, of which so many were looked at, the first
    /// of them of a moment: where there are more, as many as there are at the rate since then.
    fn lately(number: u64, looked: i64, since: Option<Timestamp>, at: Timestamp) -> Self {
        let Some(since) = since.filter(|_| looked >= ROWS) else {
            return Self::of(number, looked, ROWS);
        };
        let span = at.since(since).max(Duration::from_millis(1)).min(WINDOW);
        let estimate = u128::from(number) * WINDOW.as_millis() / span.as_millis();
        Self {
            number: u64::try_from(estimate).unwrap_or(u64::MAX),
            kind: CountKind::About,
        }
    }

    /// Adds another one; the sum is no better known than either.
    fn add(&mut self, other: Self) {
        self.number = self.number.saturating_add(other.number);
        self.kind = self.kind.max(other.kind);
    }
}

impl DestinationFigures {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            backlog: Count::default(),
            lag: None,
            parked: Count::default(),
            dead: Count::default(),
            delivered: Count::default(),
            failed: Count::default(),
        }
    }

    fn add(&mut self, part: &PartNow) {
        let unread = if part.looked < now::EVENTS {
            Count::of(part.unread, part.looked, now::EVENTS)
        } else {
            Count {
                number: part.unread.max(part.about),
                kind: CountKind::About,
            }
        };
        self.backlog.add(unread);
        let bound = now::DELIVERIES;
        let counted =
            |number: u64| Count::of(number, i64::try_from(number).unwrap_or(bound), bound);
        self.parked.add(counted(part.parked));
        self.dead.add(counted(part.dead));
        let oldest = [part.oldest_unread, part.oldest_parked]
            .into_iter()
            .flatten()
            .min();
        self.lag = self.lag.max(oldest.map(|oldest| part.at.since(oldest)));
    }
}

/// What happened lately.
struct Lately {
    committed: Count,
    delivered: BTreeMap<String, Count>,
    failed: BTreeMap<String, Count>,
    keys: Vec<(keys::State, Count)>,
}

impl Lately {
    async fn read(
        store: &Postgres,
        actor: &Actor,
        at: Timestamp,
        parts: &[PartNow],
    ) -> Result<Self, OperateError> {
        let since = Timestamp::from_millis(at.as_millis() - events::millis(WINDOW));
        let first = events::id_at(store, Moment(since)).await?;
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let (since, tenant) = (Moment(since), actor.tenant());
        let params: [&dyn Param; 5] = [&since, &ROWS, &tenant, &first, &names];
        let found = store.ask(query!("operate/lately"), &params).await?;
        let mut lately = Self {
            committed: Count::default(),
            delivered: BTreeMap::new(),
            failed: BTreeMap::new(),
            keys: Vec::new(),
        };
        for row in &found {
            let (what, name): (&str, String) = (row.get(0), row.get(1));
            let number = row.get::<_, Option<i64>>(2).unwrap_or(0).unsigned_abs();
            let count = Count::lately(number, row.get(3), moment(row, 4), at);
            match what {
                "committed" => lately.committed = count,
                "delivered" => lately.delivered.entry(name).or_default().add(count),
                "failed" => lately.failed.entry(name).or_default().add(count),
                _ => lately
                    .keys
                    .extend(keys::State::named(&name).map(|state| (state, count))),
            }
        }
        lately.keys.sort_by_key(|(state, _)| *state);
        Ok(lately)
    }
}

fn of_part(counts: &BTreeMap<String, Count>, part: &str) -> Count {
    counts.get(part).copied().unwrap_or_default()
}

/// Sagas by how they stand, and about how many keys there are: of one tenant nobody has counted.
async fn stored(
    store: &Postgres,
    actor: &Actor,
) -> Result<(Vec<(State, Count)>, Option<Count>), OperateError> {
    let states: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    let tenant = actor.tenant();
    let params: [&dyn Param; 3] = [&ROWS, &tenant, &states];
    let found = store.ask(query!("operate/stored"), &params).await?;
    let (mut sagas, mut keys) = (Vec::new(), None);
    for row in &found {
        let number: i64 = row.get(1);
        match State::named(row.get(0)) {
            Some(state) => {
                sagas.push((state, Count::of(number.unsigned_abs(), row.get(2), ROWS)));
            }
            None if number >= 0 && tenant.is_none() => {
                keys = Some(Count {
                    number: number.unsigned_abs(),
                    kind: CountKind::About,
                });
            }
            None => {}
        }
    }
    Ok((sagas, keys))
}
