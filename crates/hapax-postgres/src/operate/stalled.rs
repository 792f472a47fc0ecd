//! Why is it not moving? What stands still, and the one reason for it that the database knows.
//!
//! Whether a breaker is open only the relay that carries the part knows: its metrics say so.

use std::{fmt, time::Duration};

use hapax::Timestamp;
use tokio_postgres::Row;

use super::{
    Actor, OperateError,
    declared::moment,
    destination_of,
    now::{self, PartNow},
};
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// Something that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// What does.
    pub what: What,
    /// Why.
    pub cause: Cause,
    /// Since when, where somebody wrote that down.
    pub since: Option<Timestamp>,
    /// About how many events, deliveries or sagas wait for it; counted up to a bound.
    pub waiting: u64,
}

/// What stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A part of a destination.
    Part(String),
    /// One order key at a part of a destination: other keys move.
    OrderKey {
        /// The part.
        part: String,
        /// What kind of thing the events are about.
        aggregate_type: String,
        /// Which one.
        aggregate_id: String,
    },
    /// Events of one type at a part of a destination: events of other types move.
    EventType {
        /// The part.
        part: String,
        /// The type.
        kind: String,
    },
    /// Sagas of one kind.
    Sagas {
        /// The name of their definition.
        name: String,
        /// Its version.
        version: u32,
    },
    /// The outbox as a whole.
    Outbox,
}

/// Why something stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Somebody paused the destination; nobody is named where its own setting says so.
    Paused {
        /// Who did.
        by: Option<String>,
    },
    /// The far side said that it is gone (410), and no event goes there any more.
    Disabled {
        /// What it said.
        reason: String,
    },
    /// No relay lives, or none that lives knows the destination.
    Unowned {
        /// Who had it last.
        last: Option<String>,
    },
    /// The relay that holds the part has not been seen since.
    OwnerSilent {
        /// Which one.
        node: String,
        /// When it last said that it lives.
        seen_at: Option<Timestamp>,
    },
    /// What is due waits for its next attempt, or for the moment that the far side asked for.
    WaitsForRetry {
        /// The event that is tried next.
        position: i64,
        /// Attempts that it has had.
        attempts: u32,
        /// When it is tried again.
        next_at: Timestamp,
        /// What the last attempt failed with.
        error: Option<String>,
    },
    /// A relay that lives holds the part and settles nothing: its breaker is open, or the far side is
    /// slow. Its metrics say which.
    NotSettling,
    /// A dead letter is in the way of the later events of its key.
    BehindDeadLetter {
        /// Which one.
        position: i64,
        /// What it died of.
        error: Option<String>,
    },
    /// The far side takes others and declines these: no queue or stream listens for them, or it objects
    /// to their content. They are tried again on the destination's schedule, and are dead letters after
    /// it.
    Declined {
        /// The first of them.
        position: i64,
        /// What one of them was declined for.
        error: Option<String>,
    },
    /// Only a person can say how these sagas go on.
    NeedsAttention,
    /// These sagas are due, and no worker takes them: none that runs knows their version.
    NobodyKnows,
    /// A transaction has written something and is still open: nobody sees its events, and the outbox
    /// cannot be cleared away behind it. Others' events pass it.
    HeldBack {
        /// The process that holds it, or what it was prepared as.
        holder: String,
    },
}

/// How long something may stand still before it is told: a relay that lives moves within it.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Says what stands still, and why: what is worst first.
///
/// A destination that only a configuration file pauses is not known to be paused here: whoever has
/// the file knows. An actor of a tenant is told of its own destinations and sagas.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn stalled(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, OperateError> {
    let parts = now::parts(store, actor).await?;
    of_parts(store, actor, &parts).await
}

pub(super) async fn of_parts(
    store: &Postgres,
    actor: &Actor,
    parts: &[PartNow],
) -> Result<Vec<Stalled>, OperateError> {
    let told: Vec<(&PartNow, Option<Stalled>)> = parts.iter().map(|it| (it, told_of(it))).collect();
    // Where the whole part stands still, its keys do for the same reason.
    let moving = told
        .iter()
        .filter(|(_, told)| told.as_ref().is_none_or(|it| it.cause.is_passing()));
    let moving: Vec<String> = moving.map(|(part, _)| part.name.clone()).collect();
    let mut all: Vec<Stalled> = told.into_iter().filter_map(|(_, told)| told).collect();
    all.extend(order_keys(store, &moving).await?);
    all.extend(event_types(store, &moving).await?);
    all.extend(of_sagas(store, actor).await?);
    if actor.tenant.is_none() {
        all.extend(writers(store).await?);
    }
    all.sort_by_key(|it| it.cause.rank());
    Ok(all)
}

impl What {
    /// The destination that it belongs to.
    pub fn destination(&self) -> Option<&str> {
        match self {
            Self::Part(part) | Self::OrderKey { part, .. } | Self::EventType { part, .. } => {
                Some(destination_of(part))
            }
            Self::Sagas { .. } | Self::Outbox => None,
        }
    }
}

impl Cause {
    /// The word that stands in answers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Disabled { .. } => "disabled",
            Self::Unowned { .. } => "unowned",
            Self::OwnerSilent { .. } => "owner_silent",
            Self::WaitsForRetry { .. } => "waits_for_retry",
            Self::NotSettling => "not_settling",
            Self::BehindDeadLetter { .. } => "behind_dead_letter",
            Self::Declined { .. } => "declined",
            Self::NeedsAttention => "needs_attention",
            Self::NobodyKnows => "nobody_knows",
            Self::HeldBack { .. } => "held_back",
        }
    }

    /// The worst first: what never moves again by itself, what moves once somebody comes, what was
    /// meant, and what moves by itself.
    const fn rank(&self) -> u8 {
        match self {
            Self::Disabled { .. } => 0,
            Self::Unowned { .. } => 1,
            Self::OwnerSilent { .. } => 2,
            Self::NeedsAttention => 3,
            Self::NobodyKnows => 4,
            Self::BehindDeadLetter { .. } => 5,
            Self::Declined { .. } => 6,
            Self::NotSettling => 7,
            Self::HeldBack { .. } => 8,
            Self::Paused { .. } => 9,
            Self::WaitsForRetry { .. } => 10,
        }
    }

    /// Whether what else a part has still moves.
    const fn is_passing(&self) -> bool {
        matches!(self, Self::WaitsForRetry { .. } | Self::NotSettling)
    }
}

impl fmt::Display for Cause {
    /// A clause for people, without moments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |error: &Option<String>| {
            let error = error.as_deref().filter(|error| !error.is_empty());
            error.map(|error| format!(": {error}")).unwrap_or_default()
        };
        match self {
            Self::Paused { by: Some(by) } => write!(f, "paused by {by}"),
            Self::Paused { by: None } => write!(f, "paused by its own setting"),
            Self::Disabled { reason } => write!(f, "disabled: {reason}"),
            Self::Unowned { last: Some(last) } => {
                write!(f, "nobody carries it; {last} did, and does not live")
            }
            Self::Unowned { last: None } => write!(f, "nobody carries it"),
            Self::OwnerSilent { node, .. } => {
                write!(f, "held by {node}, which does not say that it lives")
            }
            Self::WaitsForRetry {
                position,
                attempts,
                error,
                ..
            } => {
                let error = said(error);
                write!(
                    f,
                    "event {position} waits for attempt {}{error}",
                    attempts + 1
                )
            }
            Self::NotSettling => write!(
                f,
                "its relay lives and settles nothing: a breaker is open, or the far side is slow"
            ),
            Self::BehindDeadLetter { position, error } => {
                write!(f, "behind dead letter {position}{}", said(error))
            }
            Self::Declined { error, .. } => {
                write!(f, "the far side declines them{}", said(error))
            }
            Self::NeedsAttention => write!(f, "only a person can say how they go on"),
            Self::NobodyKnows => write!(f, "due, and no worker that knows them takes them"),
            Self::HeldBack { holder } => {
                write!(f, "{holder} has written something and is still open")
            }
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => write!(f, "destination {part}"),
            Self::OrderKey {
                part,
                aggregate_type,
                aggregate_id,
            } => write!(f, "{aggregate_type} {aggregate_id} at {part}"),
            Self::EventType { part, kind } => write!(f, "events {kind} at {part}"),
            Self::Sagas { name, version } => write!(f, "sagas {name} version {version}"),
            Self::Outbox => write!(f, "the outbox"),
        }
    }
}

/// Order keys that are told of at most.
const KEYS: i64 = 50;
/// Event types that are told of at most.
const TYPES: i64 = 20;
/// Deliveries of each kind that are looked at for what they hold up, and of each key behind them.
const HEADS: i64 = 100;
/// Sagas of one kind that are counted.
const SAGAS: i64 = 1_000;

fn told_of(part: &PartNow) -> Option<Stalled> {
    let waiting = part.unread.max(if part.looked < now::EVENTS {
        0
    } else {
        part.about
    }) + part.parked;
    let told = |cause, since| {
        Some(Stalled {
            what: What::Part(part.name.clone()),
            cause,
            since,
            waiting,
        })
    };
    if let Some((at, reason)) = &part.disabled {
        let reason = reason.clone();
        return told(Cause::Disabled { reason }, Some(*at));
    }
    if part.paused_at.is_some() || part.is_set_paused {
        let by = part.paused_by.clone().filter(|_| part.paused_at.is_some());
        return told(Cause::Paused { by }, part.paused_at);
    }
    if waiting == 0 {
        return None;
    }
    match &part.node {
        Some(node) if !part.lives && part.any_lives => {
            let (node, seen_at) = (node.clone(), part.seen_at);
            return told(Cause::OwnerSilent { node, seen_at }, seen_at);
        }
        last if !part.lives => {
            let last = last.clone();
            return told(Cause::Unowned { last }, part.seen_at);
        }
        _ => {}
    }
    let is_old = |at: Timestamp| part.at.since(at) > PATIENCE;
    match &part.next {
        Some(next) if next.due_at > part.at => {
            let cause = Cause::WaitsForRetry {
                position: next.position,
                attempts: next.attempts,
                next_at: next.due_at,
                error: next.error.clone(),
            };
            told(cause, Some(next.changed_at))
        }
        Some(next) if is_old(next.due_at) => told(Cause::NotSettling, Some(next.due_at)),
        _ if part.oldest_unread.is_some_and(is_old) && is_old(part.written_at) => {
            told(Cause::NotSettling, Some(part.written_at))
        }
        _ => None,
    }
}

async fn order_keys(store: &Postgres, parts: &[String]) -> Result<Vec<Stalled>, OperateError> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let parts = parts.to_vec();
    let params: [&dyn Param; 3] = [&parts, &HEADS, &KEYS];
    let found = store.ask(query!("operate/held_up"), &params).await?;
    Ok(found.iter().map(held_up).collect())
}

fn held_up(row: &Row) -> Stalled {
    let key: &str = row.get(5);
    let (kind, id) = key.split_once('\n').unwrap_or(("", key));
    let (position, error) = (row.get(1), row.get(6));
    let cause = if row.get::<_, &str>(2) == "dead" {
        Cause::BehindDeadLetter { position, error }
    } else {
        Cause::WaitsForRetry {
            position,
            attempts: row.get::<_, i32>(3).unsigned_abs(),
            next_at: row.get::<_, Moment>(4).0,
            error,
        }
    };
    Stalled {
        what: What::OrderKey {
            part: row.get(0),
            aggregate_type: kind.to_owned(),
            aggregate_id: id.to_owned(),
        },
        cause,
        since: Some(row.get::<_, Moment>(7).0),
        waiting: row.get::<_, i64>(8).unsigned_abs(),
    }
}

async fn event_types(store: &Postgres, parts: &[String]) -> Result<Vec<Stalled>, OperateError> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let parts = parts.to_vec();
    let params: [&dyn Param; 3] = [&parts, &HEADS, &TYPES];
    let found = store.ask(query!("operate/declined"), &params).await?;
    let declined = |row: &Row| Stalled {
        what: What::EventType {
            part: row.get(0),
            kind: row.get(1),
        },
        cause: Cause::Declined {
            position: row.get(2),
            error: row.get(4),
        },
        since: Some(row.get::<_, Moment>(5).0),
        waiting: row.get::<_, i64>(3).unsigned_abs(),
    };
    Ok(found.iter().map(declined).collect())
}

async fn of_sagas(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, OperateError> {
    let (patience, tenant, time) = (age(PATIENCE), actor.tenant(), store.time());
    let params: [&dyn Param; 4] = [&patience, &SAGAS, &tenant, &time];
    let found = store.ask(query!("operate/sagas_waiting"), &params).await?;
    let kind = |row: &Row| Stalled {
        what: What::Sagas {
            name: row.get(0),
            version: u32::try_from(row.get::<_, i64>(1)).unwrap_or(0),
        },
        cause: if row.get(4) {
            Cause::NeedsAttention
        } else {
            Cause::NobodyKnows
        },
        since: moment(row, 3),
        waiting: row.get::<_, i64>(2).unsigned_abs(),
    };
    Ok(found.iter().map(kind).collect())
}

async fn writers(store: &Postgres) -> Result<Vec<Stalled>, OperateError> {
    let found = store
        .ask(query!("operate/open_writers"), &[&age(PATIENCE)])
        .await?;
    let writer = |row: &Row| Stalled {
        what: What::Outbox,
        cause: Cause::HeldBack { holder: row.get(0) },
        since: moment(row, 1),
        waiting: 0,
    };
    Ok(found.iter().map(writer).collect())
}
