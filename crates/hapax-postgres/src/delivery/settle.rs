//! Settlements: everything that one round of a relay worker writes, in one transaction and one
//! pipeline.
//!
//! The first statement locks the partition for the epoch. It fails if the epoch is not the current
//! one, or if the events were read in a history that the database has lost. All statements sent
//! after it then fail too, so an owner that was replaced, or whose events disappeared in a
//! failover, changes nothing.
//!
//! A settlement may be sent twice because the result of its first commit was lost. The second one
//! has no further effect: what an operator may also change is changed by the first one only, and
//! the rest is written with the same values.

mod arrivals;
mod effects;
mod seen;

use std::collections::HashSet;

use hapax::{
    delivery::{Checkpoint, Settlement, positions},
    operational::Occurrence,
    store::StoreError,
};
use tokio_postgres::Row;

use crate::{
    connection::{Link, Ready},
    delivery::{pipeline_failed, sweep},
    operational,
    outbox::is_refused,
    postgres::Postgres,
    query,
    session::{PipelineError, QueuedStatement, Session},
    value::{Moment, Param},
};

use effects::Effects;
use seen::Seen;

/// Writes a settlement if its epoch still owns the partition.
///
/// Returns the released order keys that have no unfinished delivery left.
pub(crate) async fn settle(
    store: &Postgres,
    settlement: &Settlement,
) -> Result<Vec<String>, StoreError> {
    let mut session = store.session().await?;
    let seen = Seen::of(settlement);
    let asked = Seen::sql(&seen);
    let reported = operational::sealed(store, Occurrence::of_settlement(settlement));
    let ready = async |link: &Link| {
        let statements = Statements::ready(link).await?;
        Ok((statements, link.ready_all(&asked).await?))
    };
    let statements = session.run(ready).await;
    let results = match statements {
        Ok((statements, asks)) => {
            store.settings().failpoints.hit("postgres.commit.before");
            let seen = (&*asks, &*seen);
            let effects = Effects::of(settlement, &reported, store.now());
            write(store, &mut session, &statements, seen, settlement, &effects).await
        }
        Err(flight) => Err(flight.into()),
    };
    match results {
        Ok(Some(written)) => {
            session.end();
            store.settings().failpoints.hit("postgres.commit.after");
            if let Some(number) = written.checkpoint {
                sweep::checkpoints(store, number).await;
            }
            Ok(written.free)
        }
        Ok(None) => {
            session.rollback().await;
            Box::pin(settle(store, &keys(settlement))).await
        }
        Err(error) => {
            session.rollback().await;
            match error {
                StoreError::Fenced => Err(refused(store, settlement).await),
                error => Err(error),
            }
        }
    }
}

/// Why a settlement was refused: the partition has another owner, or the database was set back.
async fn refused(store: &Postgres, settlement: &Settlement) -> StoreError {
    let Some(follows) = settlement.follows else {
        return StoreError::Fenced;
    };
    let params: [&dyn Param; 2] = [&settlement.destination, &settlement.epoch];
    match store.ask(query!("delivery/is_fenced"), &params).await {
        Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => StoreError::Fenced,
        Ok(_) => StoreError::SetBack {
            what: format!(
                "its newest checkpoint is not {follows}, or it does not contain what was read"
            ),
        },
        Err(error) => error,
    }
}

/// A settlement that only queries the released keys of one that was already written.
fn keys(settlement: &Settlement) -> Settlement {
    Settlement {
        destination: settlement.destination.clone(),
        epoch: settlement.epoch,
        read: settlement.read.clone(),
        release: settlement.release.clone(),
        ..Settlement::default()
    }
}

/// The result of a settlement that was written.
struct Written {
    /// The number of its checkpoint, if it contained one.
    checkpoint: Option<i64>,
    free: Vec<String>,
}

/// The statements of a settlement.
struct Statements {
    epoch: Ready,
    is_written: Ready,
    checkpoint: Ready,
    begin: Ready,
    park: Ready,
    deliver: Ready,
    release: Ready,
    is_held: Ready,
    attempt: Ready,
    arrival: Ready,
    disable: Ready,
    emit: Ready,
}

impl Statements {
    async fn ready(link: &Link) -> Result<Self, tokio_postgres::Error> {
        let sql = [
            query!("delivery/epoch"),
            query!("delivery/is_written"),
            query!("delivery/checkpoint"),
            query!("delivery/begin"),
            query!("delivery/park"),
            query!("delivery/deliver"),
            query!("delivery/release"),
            query!("delivery/is_held"),
            query!("delivery/attempt"),
            query!("delivery/arrival"),
            query!("delivery/disable"),
            query!("outbox/emit"),
        ];
        let [
            epoch,
            is_written,
            checkpoint,
            begin,
            park,
            deliver,
            release,
            is_held,
            attempt,
            arrival,
            disable,
            emit,
        ] = link.ready(sql).await?;
        Ok(Self {
            epoch,
            is_written,
            checkpoint,
            begin,
            park,
            deliver,
            release,
            is_held,
            attempt,
            arrival,
            disable,
            emit,
        })
    }
}

/// Sends the settlement. Returns `None` if it was written before.
async fn write(
    store: &Postgres,
    session: &mut Session,
    statements: &Statements,
    (asked, seen): (&[Ready], &[Seen<'_>]),
    settlement: &Settlement,
    effects: &Effects<'_>,
) -> Result<Option<Written>, StoreError> {
    let (start, now) = (store.begin_read_committed(), store.now());
    let destination = settlement.destination.as_str();
    let moved = settlement.checkpoint.as_ref();
    let Settlement { epoch, number, .. } = *settlement;
    let moved = moved.map(|it| Moved::of(destination, epoch, number, it, now));
    let (highs, snapshots) = read(settlement);
    let follows = follows(settlement);
    let sets = moved.as_ref().map(|it| (&*it.settled, &*it.offered));
    let (settled, offered) = sets.unzip();
    let owner: [&dyn Param; 10] = [
        &destination,
        &settlement.epoch,
        &highs,
        &snapshots,
        &settled,
        &offered,
        &follows[0],
        &follows[1],
        &follows[2],
        &number,
    ];
    let moved = moved.as_ref().map(Moved::params);
    let asks = number > 0 && settlement.is_once();
    let known: [&dyn Param; 3] = [&destination, &epoch, &number];
    let seen = seen
        .iter()
        .map(|seen| seen.params(&destination, settlement));
    let seen: Vec<_> = asked.iter().zip(seen).collect();
    // The statement of the checkpoint comes after that of the epoch, the query whether the
    // settlement was written before (if it is sent), and the queries for the events that were read.
    let asked = 2 + usize::from(asks) + seen.len();
    let effects = effects.params();
    let results = session.pipeline_from(Some(&start), |link: &Link| -> Vec<QueuedStatement<'_>> {
        let mut queued: Vec<QueuedStatement<'_>> =
            vec![Box::pin(link.rows(&statements.epoch, &owner))];
        let mut add = |wanted: bool, ready, params| {
            if wanted {
                queued.push(Box::pin(link.rows(ready, params)));
            }
        };
        add(asks, &statements.is_written, &known[..]);
        for (ready, seen) in &seen {
            add(true, *ready, &seen[..]);
        }
        if let Some(moved) = &moved {
            add(true, &statements.checkpoint, &moved[..]);
        }
        queued.extend(effects.queue(link, statements));
        queued.push(Box::pin(link.none("COMMIT")));
        queued
    });
    match results.await {
        Ok(completed) => {
            let number = moved.as_ref().and(completed.get(asked));
            // The last statement before COMMIT, if it was sent.
            let held = completed.iter().rev().nth(1).map_or(&[][..], Vec::as_slice);
            Ok(Some(Written {
                checkpoint: number.and_then(|rows| rows.first()).map(|row| row.get(0)),
                free: free(&settlement.release, held),
            }))
        }
        Err(failed) if asks && failed.statement == 2 && is_refused(&failed.cause) => Ok(None),
        Err(failed) => Err(fenced(failed, asked)),
    }
}

/// The checkpoint that this settlement follows: its epoch, settlement and frontier.
fn follows(settlement: &Settlement) -> [Option<i64>; 3] {
    let follows = settlement.follows;
    [
        follows.map(|it| it.epoch),
        follows.map(|it| it.settlement),
        follows.map(|it| it.high),
    ]
}

/// The frontiers of the reads, which identify the history. A frontier without a snapshot has read
/// nothing.
fn read(settlement: &Settlement) -> (Vec<i64>, Vec<&str>) {
    let checkpoint = settlement.checkpoint.as_ref().map(|it| &it.frontier);
    let instead = checkpoint.filter(|_| settlement.read.is_empty());
    let all = settlement.read.iter().chain(instead);
    all.filter_map(|read| Some((read.high, read.snapshot.as_deref()?)))
        .unzip()
}

/// The error of a settlement. Its first `asked` statements check whether it may be written.
fn fenced(failed: PipelineError, asked: usize) -> StoreError {
    if (1..asked).contains(&failed.statement) && is_refused(&failed.cause) {
        return StoreError::Fenced;
    }
    pipeline_failed(failed)
}

fn free(released: &[String], held: &[Row]) -> Vec<String> {
    if released.is_empty() {
        return Vec::new();
    }
    let held: HashSet<&str> = held.iter().map(|row| row.get(0)).collect();
    let free = released.iter().filter(|key| !held.contains(key.as_str()));
    free.cloned().collect()
}

/// The text with its zero bytes replaced: PostgreSQL cannot store them, and a receiver's error may
/// contain them.
pub(crate) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The columns of a checkpoint's row.
pub(crate) struct Moved<'a> {
    destination: &'a str,
    epoch: i64,
    number: i64,
    high: i64,
    snapshot: Option<&'a str>,
    settled: String,
    offered: String,
    now: Moment,
}

impl<'a> Moved<'a> {
    pub(crate) fn of(
        destination: &'a str,
        epoch: i64,
        number: i64,
        checkpoint: &'a Checkpoint,
        now: Moment,
    ) -> Self {
        Self {
            destination,
            epoch,
            number,
            high: checkpoint.frontier.high,
            snapshot: checkpoint.frontier.snapshot.as_deref(),
            settled: positions::write(&checkpoint.settled),
            offered: positions::write(&checkpoint.offered),
            now,
        }
    }

    pub(crate) fn params(&self) -> [&dyn Param; 8] {
        [
            &self.destination,
            &self.epoch,
            &self.high,
            &self.snapshot,
            &self.settled,
            &self.offered,
            &self.now,
            &self.number,
        ]
    }
}
