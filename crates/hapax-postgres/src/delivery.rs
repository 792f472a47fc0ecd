//! Deliveries: who owns a destination, how far it is, and what waits outside its flow.
//!
//! Plain sailing is one checkpoint row for each destination; only what is late, failing, blocked
//! or dead has a row of its own. Whoever changes deliveries holds the destination's checkpoint row
//! first, so no two of them wait for each other. Opening a destination fences the owner before it
//! and makes due what that owner had on the wire. Ended rows stay until retention takes them.

use std::mem::take;

use hapax::{
    Timestamp,
    dead_letter::DeadLetter,
    delivery::{
        Checkpoint, Frontier, Opened, Owner, Parked, ParkedState, Settlement, Standing, positions,
    },
    limits::READ_BYTES,
    store::{Deliveries, StoreError},
};
use tokio_postgres::Row;

use crate::{
    connection::Link,
    dead_letter,
    error::corrupt,
    outbox::{self, begin, rows},
    postgres::Postgres,
    query,
    session::{Crash, Leg, Session},
    settle,
    value::{Moment, Param},
};

/// Events that a backlog is counted by; beyond it positions are subtracted.
const COUNTED: i64 = 10_000;
/// Deliveries that are counted one by one; where more wait, this many are reported.
const PARKED_COUNTED: i64 = 100_000;
const INTERRUPTED: &str = "the relay ended before the attempt did";

impl Deliveries for Postgres {
    async fn open(&self, destination: &str) -> Result<Opened, StoreError> {
        let mut session = Session::open(self).await?;
        match self.take_over(&mut session, destination).await {
            Ok(opened) => {
                session.end();
                Ok(opened)
            }
            Err(error) => {
                session.rollback().await;
                Err(error)
            }
        }
    }

    async fn beat(&self, destination: &str, epoch: i64) -> Result<(), StoreError> {
        let params: [&dyn Param; 3] = [&destination, &epoch, &self.now()];
        let beaten = self.ask(query!("delivery/beat"), &params).await?;
        if beaten.is_empty() {
            return Err(StoreError::Fenced);
        }
        Ok(())
    }

    async fn owner(&self, destination: &str) -> Result<Option<Owner>, StoreError> {
        let owner = self.ask(query!("delivery/owner"), &[&destination]).await?;
        Ok(owner.first().map(|row| Owner {
            epoch: row.get(0),
            seen_at: row.get::<_, Moment>(1).0,
        }))
    }

    async fn settle(&self, settlement: Settlement) -> Result<Vec<String>, StoreError> {
        settle::settle(self, &settlement).await
    }

    async fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
    ) -> Result<Vec<Parked>, StoreError> {
        let (now, limit, bytes) = (self.now(), rows(limit), rows(READ_BYTES));
        let params: [&dyn Param; 5] = [&destination, &now, &except, &limit, &bytes];
        let due = self.ask(query!("delivery/due"), &params).await?;
        outbox::until_unreadable(due.iter().map(parked).collect())
    }

    async fn next_due(&self, destination: &str) -> Result<Option<Timestamp>, StoreError> {
        let next = self
            .ask(query!("delivery/next_due"), &[&destination])
            .await?;
        Ok(next.first().map(|row| row.get::<_, Moment>(0).0))
    }

    async fn standing(&self, destination: &str) -> Result<Standing, StoreError> {
        let mut session = Session::open(self).await?;
        match stand(self, &mut session, destination).await {
            Ok(standing) => {
                session.end();
                Ok(standing)
            }
            Err(error) => {
                session.rollback().await;
                Err(error)
            }
        }
    }

    async fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        dead_letter::list(self, destination, after, limit).await
    }

    async fn replay(&self, destination: &str, position: i64) -> Result<bool, StoreError> {
        dead_letter::replay(self, destination, position).await
    }

    async fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        dead_letter::discard(self, destination, position, reason).await
    }
}

/// The word for a state in its row.
pub(crate) fn word(state: ParkedState) -> &'static str {
    match state {
        ParkedState::Scheduled => "scheduled",
        ParkedState::Retrying => "retrying",
        ParkedState::Blocked => "blocked",
        ParkedState::Dead => "dead",
    }
}

/// What a destination's rows say when it is opened.
struct Found {
    epoch: i64,
    checkpoint: Checkpoint,
    written_at: Moment,
    was_disabled: Option<String>,
}

impl Postgres {
    async fn take_over(
        &self,
        session: &mut Session,
        destination: &str,
    ) -> Result<Opened, StoreError> {
        let mut found = self.raise_epoch(session, destination).await?;
        let (interrupted, blocked_keys) = self.interrupt(session, destination, &mut found).await?;
        Ok(Opened {
            epoch: found.epoch,
            checkpoint: found.checkpoint,
            blocked_keys,
            interrupted,
            was_disabled: found.was_disabled,
        })
    }

    async fn raise_epoch(
        &self,
        session: &mut Session,
        destination: &str,
    ) -> Result<Found, StoreError> {
        let (begin, now) = (begin(self), self.now());
        let sql = [
            query!("delivery/hold_open"),
            query!("delivery/hold"),
            query!("delivery/register"),
            query!("delivery/open"),
        ];
        let ready = session.run(async |link| link.ready(sql).await).await?;
        let [hold_open, hold, register, open] = &ready;
        let name: [&dyn Param; 1] = [&destination];
        let named: [&dyn Param; 2] = [&destination, &now];
        let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
            vec![
                Box::pin(link.none(&begin)),
                Box::pin(link.rows(hold_open, &name)),
                Box::pin(link.rows(hold, &name)),
                Box::pin(link.rows(register, &named)),
                Box::pin(link.rows(open, &named)),
            ]
        });
        let landed = flown.await.map_err(told)?;
        let missing = || corrupt(format!("destination {destination} is not there"));
        let registered = landed[3].first().ok_or_else(missing)?;
        let row = landed[4].first().ok_or_else(missing)?;
        let set = |column| {
            positions::parse(row.get(column))
                .ok_or_else(|| corrupt(format!("checkpoint of {destination}")))
        };
        Ok(Found {
            epoch: row.get(0),
            checkpoint: Checkpoint {
                frontier: Frontier {
                    high: row.get(1),
                    snapshot: row.get::<_, Option<String>>(2).map(Into::into),
                },
                settled: set(3)?,
                offered: set(4)?,
            },
            written_at: row.get(5),
            was_disabled: registered.get(0),
        })
    }

    /// Parks what was on the wire when the last owner ended, and commits.
    async fn interrupt(
        &self,
        session: &mut Session,
        destination: &str,
        found: &mut Found,
    ) -> Result<(u64, Vec<String>), StoreError> {
        let now = self.now();
        let offered: Vec<i64> = take(&mut found.checkpoint.offered).into_iter().collect();
        found.checkpoint.settled.extend(&offered);
        let sql = [
            query!("delivery/interrupt_begun"),
            query!("delivery/interrupt_offered"),
            query!("delivery/checkpoint"),
            query!("delivery/blocked_keys"),
        ];
        let ready = session.run(async |link| link.ready(sql).await).await?;
        let [begun, park, move_checkpoint, blocked_keys] = &ready;
        let begun_params: [&dyn Param; 3] = [&destination, &now, &INTERRUPTED];
        let park_params: [&dyn Param; 5] = [
            &destination,
            &offered,
            &now,
            &INTERRUPTED,
            &found.written_at,
        ];
        let moved = settle::Moved::of(destination, &found.checkpoint, now);
        let moved = moved.params();
        let name: [&dyn Param; 1] = [&destination];
        self.settings().failpoints.hit("postgres.commit.before");
        let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
            let mut legs: Vec<Leg<'_>> = vec![
                Box::pin(link.rows(begun, &begun_params)),
                Box::pin(link.rows(blocked_keys, &name)),
            ];
            if !offered.is_empty() {
                legs.insert(1, Box::pin(link.rows(park, &park_params)));
                legs.insert(2, Box::pin(link.rows(move_checkpoint, &moved)));
            }
            legs.push(Box::pin(link.none("COMMIT")));
            legs
        });
        let landed = flown.await.map_err(told)?;
        self.settings().failpoints.hit("postgres.commit.after");
        let count = |leg: &[Row]| leg.first().map_or(0, |row| row.get::<_, i64>(0));
        let mut interrupted = count(&landed[0]);
        if !offered.is_empty() {
            interrupted += count(&landed[1]);
        }
        let keys = landed[landed.len() - 2].iter().map(|row| row.get(0));
        Ok((interrupted.unsigned_abs(), keys.collect()))
    }
}

/// Why a flight of deliveries did not land.
pub(crate) fn told(crash: Crash) -> StoreError {
    crash.cause.into()
}

fn parked(row: &Row) -> Result<Parked, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("parked delivery: {error}"));
    let state = match row.try_get(11).map_err(bad)? {
        "scheduled" => ParkedState::Scheduled,
        "retrying" => ParkedState::Retrying,
        other => return Err(corrupt(format!("parked delivery in state {other:?}"))),
    };
    Ok(Parked {
        event: outbox::event(row)?,
        state,
        attempt: row.try_get::<_, i32>(12).map_err(bad)?.unsigned_abs(),
        next_at: row.try_get::<_, Moment>(13).map_err(bad)?.0,
        order_key: row.try_get(14).map_err(bad)?,
    })
}

/// Reads a standing in one snapshot.
async fn stand(
    store: &Postgres,
    session: &mut Session,
    destination: &str,
) -> Result<Standing, StoreError> {
    let begin = format!(
        "{}; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        crate::idempotency::begin(store)
    );
    let sql = [
        query!("delivery/find_checkpoint"),
        query!("delivery/count_parked"),
        query!("delivery/count_dead"),
        query!("outbox/count_beyond"),
        query!("outbox/last"),
        query!("outbox/ages_beyond"),
    ];
    let ready = session.run(async |link| link.ready(sql).await).await?;
    let [find, count_parked, count_dead, count_beyond, last, ages] = &ready;
    let name: [&dyn Param; 1] = [&destination];
    let named: [&dyn Param; 2] = [&destination, &PARKED_COUNTED];
    let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
        vec![
            Box::pin(link.none(&begin)),
            Box::pin(link.rows(find, &name)),
            Box::pin(link.rows(count_parked, &named)),
            Box::pin(link.rows(count_dead, &named)),
        ]
    });
    let landed = flown.await.map_err(told)?;
    let number = |leg: &[Row]| leg.first().map_or(0, |row| row.get::<_, i64>(0));
    let moment = |leg: &[Row], column: usize| {
        let row = leg.first()?;
        row.get::<_, Option<Moment>>(column).map(|it| it.0)
    };
    let high = number(&landed[1]);
    let settled = landed[1].first().map_or("", |row| row.get(1));
    let settled =
        positions::parse(settled).ok_or_else(|| corrupt(format!("checkpoint of {destination}")))?;
    // What was settled of the late ones lies below, and is not counted beyond.
    let settled: Vec<i64> = settled.range(high.saturating_add(1)..).copied().collect();
    let (parked, dead) = (number(&landed[2]), number(&landed[3]));
    let oldest_parked = moment(&landed[2], 1);
    let beyond_params: [&dyn Param; 2] = [&high, &COUNTED];
    let ages_params: [&dyn Param; 2] = [&high, &settled];
    let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
        vec![
            Box::pin(link.rows(count_beyond, &beyond_params)),
            Box::pin(link.rows(last, &[])),
            Box::pin(link.rows(ages, &ages_params)),
            Box::pin(link.none("COMMIT")),
        ]
    });
    let landed = flown.await.map_err(told)?;
    // Exact for a short way; for a long one the ids that were skipped are counted too.
    let beyond = match number(&landed[0]) {
        counted if counted < COUNTED => counted,
        _ => number(&landed[1]).saturating_sub(high),
    };
    let beyond = beyond.saturating_sub(rows(settled.len())).max(0);
    let oldest_beyond = moment(&landed[2], 0);
    Ok(Standing {
        backlog: (beyond + parked).unsigned_abs(),
        parked: parked.unsigned_abs(),
        dead: dead.unsigned_abs(),
        oldest_at: oldest_parked.into_iter().chain(oldest_beyond).min(),
    })
}
