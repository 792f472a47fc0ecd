//! The outbox: read beyond a frontier among writers, and purged behind all of them.
//!
//! A read is one statement and one snapshot, without a lock or a write; what is late comes before
//! what is new, so that an aggregate's events keep their order. Where very much is late it is read
//! in several steps, each bounded in rows, bytes and ids. See `frontier` for why nothing is lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join;
use hapax::{
    Timestamp,
    delivery::Frontier,
    event::{Aggregate, Event},
    key::Tenant,
    limits::{PURGE_ROWS, READ_BYTES},
    outbox::{OutboxEvent, unseal},
    store::{Batch, Outbox, StoreError},
};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    connection::{Flight, Link, within},
    error::{corrupt, unavailable},
    frontier::{Late, Mark, Sight, Snapshot},
    idempotency::{self, millis},
    inbox,
    postgres::Postgres,
    query,
    session::{Leg, Session},
    value::{Moment, Param},
};

/// Ids that one statement looks through for late events: some tens of milliseconds.
const SCAN: i64 = 50_000;
/// Frontiers beyond which nothing was found, for destinations that wait at the head.
const LOOKS: usize = 16;

/// What this node knows of the outbox beyond what frontiers say.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Frontiers beyond which nothing was found, with newer ones that say the same.
    vain: Mutex<VecDeque<(Frontier, Mark)>>,
    /// Whether the role may not ask which cluster this is.
    is_nameless: AtomicBool,
}

impl Looks {
    /// The newest mark that says what `frontier` does: what was looked through in vain is not
    /// looked through again.
    fn newest(&self, frontier: &Frontier) -> Result<Mark, StoreError> {
        let vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        let known = vain.iter().find(|(from, _)| from == frontier);
        known.map_or_else(|| Mark::of(frontier), |(_, mark)| Ok(mark.clone()))
    }

    fn in_vain(&self, frontier: &Frontier, mark: &Mark) {
        let mut vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = vain.iter_mut().find(|(from, _)| from == frontier) {
            known.1 = mark.clone();
            return;
        }
        if vain.len() == LOOKS {
            vain.pop_front();
        }
        vain.push_back((frontier.clone(), mark.clone()));
    }
}

impl Outbox for Postgres {
    async fn read(&self, frontier: &Frontier, limit: usize) -> Result<Batch, StoreError> {
        let mut mark = self.looks().newest(frontier)?;
        loop {
            let catching_up = mark.late.is_some();
            let step = match &mark.late {
                Some(late) => self.catch_up(&mark, late, limit).await?,
                None => self.look(&mark, limit).await?,
            };
            if !step.events.is_empty() {
                return Ok(Batch {
                    events: step.events,
                    frontier: step.mark.frontier(),
                });
            }
            if !catching_up && step.mark.late.is_none() && !step.again {
                self.looks().in_vain(frontier, &step.mark);
                return Ok(Batch {
                    events: Vec::new(),
                    frontier: step.mark.frontier(),
                });
            }
            mark = step.mark;
        }
    }

    async fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> Result<u64, StoreError> {
        let events = self.purge_passed(retention).await?;
        let time = self.time();
        let age = age(inbox_retention);
        let params: [&dyn Param; 3] = [&time, &age, &rows(PURGE_ROWS)];
        let messages = self.ask(query!("inbox/purge"), &params).await?;
        Ok(events + inbox::purged(&messages))
    }
}

/// What one statement found.
struct Step {
    events: Vec<Arc<OutboxEvent>>,
    mark: Mark,
    /// Whether nothing was looked at yet.
    again: bool,
}

impl Postgres {
    /// Takes a new snapshot and reads what it shows beyond the mark.
    async fn look(&self, mark: &Mark, limit: usize) -> Result<Step, StoreError> {
        let open = mark.open();
        let params: [&dyn Param; 8] = [
            &mark.high,
            &mark.seen(),
            &open.xids,
            &open.floors,
            &open.beyond,
            &SCAN,
            &rows(limit),
            &rows(READ_BYTES),
        ];
        let (cluster, found) = self.fly_look(&params).await?;
        if mark.is_foreign(cluster.as_deref()) {
            tracing::warn!("the database is on another cluster: late events are looked for anew");
            return Ok(Step {
                events: Vec::new(),
                mark: mark.clone().restored(),
                again: true,
            });
        }
        let (sight, until) = sight(&found)?;
        let found = Found::of(found.iter().filter(|row| !row_is_empty(row)), limit)?;
        let incomplete = until.filter(|until| *until < mark.high);
        let (high, after) = match found.last {
            Some(last) if last > mark.high => (last, None),
            Some(last) if found.is_cut => (mark.high, Some(last)),
            _ => (mark.high, incomplete),
        };
        Ok(Step {
            mark: mark.looked(&sight, cluster.as_deref(), high, after),
            events: found.events,
            again: false,
        })
    }

    /// Reads on through what is late.
    async fn catch_up(&self, mark: &Mark, late: &Late, limit: usize) -> Result<Step, StoreError> {
        let until = late.after.saturating_add(SCAN).min(mark.high);
        let before = &*late.before.text;
        let params: [&dyn Param; 6] = [
            &late.after,
            &until,
            &before,
            &mark.seen(),
            &rows(limit),
            &rows(READ_BYTES),
        ];
        let found = self.ask(query!("outbox/read_late"), &params).await?;
        let found = Found::of(&found, limit)?;
        let after = match found.last {
            Some(last) if found.is_cut => Some(last),
            _ => Some(until).filter(|until| *until < mark.high),
        };
        Ok(Step {
            events: found.events,
            mark: mark.clone().caught_up(after),
            again: false,
        })
    }

    /// Asks which cluster this is and what is new, in one flight.
    async fn fly_look(
        &self,
        params: &[&dyn Param],
    ) -> Result<(Option<String>, Vec<Row>), StoreError> {
        let link = self.link().await?;
        let flight = async {
            let sql = [query!("outbox/cluster"), query!("outbox/read")];
            let [cluster, read] = link.ready(sql).await?;
            let name = async {
                if self.looks().is_nameless.load(Ordering::Relaxed) {
                    return Ok(Vec::new());
                }
                link.rows(&cluster, &[]).await
            };
            let (name, found) = join(name, link.rows(&read, params)).await;
            Ok((self.name(name)?, found?))
        };
        let landed = within(self.settings().statement_max, flight).await;
        landed.map_err(|flight| {
            if flight.is_unknown() {
                link.taint();
            }
            flight.into()
        })
    }

    /// What the cluster calls itself; a role that may not ask never does again.
    fn name(
        &self,
        asked: Result<Vec<Row>, tokio_postgres::Error>,
    ) -> Result<Option<String>, tokio_postgres::Error> {
        match asked {
            Ok(rows) => Ok(rows.first().map(|row| row.get(0))),
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                self.looks().is_nameless.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a batch of events that nobody needs, with what is known of their deliveries.
    ///
    /// One purge at a time: another one that is running, and a destination that is being opened,
    /// have it do nothing.
    async fn purge_passed(&self, retention: Duration) -> Result<u64, StoreError> {
        let now = self.clock().now().as_millis();
        let before = Moment(Timestamp::from_millis(now.saturating_sub(age(retention))));
        let mut session = Session::open(self).await?;
        let sql = [query!("outbox/hold_purge"), query!("outbox/purge")];
        let ready = session.run(async |link| link.ready(sql).await).await?;
        let begin = begin(self);
        let count = rows(PURGE_ROWS);
        let params: [&dyn Param; 2] = [&before, &count];
        let [hold, purge] = &ready;
        let flown = session.fly(|link: &Link| -> Vec<Leg<'_>> {
            vec![
                Box::pin(link.none(&begin)),
                Box::pin(link.rows(hold, &[])),
                Box::pin(link.rows(purge, &params)),
                Box::pin(link.none("COMMIT")),
            ]
        });
        let flown = flown.await;
        match flown {
            Ok(landed) => {
                session.end();
                let purged = landed[2].first().map_or(0, |row| row.get::<_, i64>(0));
                Ok(purged.unsigned_abs())
            }
            Err(crash) => {
                let is_held = crash.leg == 1 && is_refused(&crash.cause);
                session.rollback().await;
                if is_held {
                    Ok(0)
                } else {
                    Err(crash.cause.into())
                }
            }
        }
    }
}

/// Events out of rows, up to a bound or to the first that cannot be read.
struct Found {
    events: Vec<Arc<OutboxEvent>>,
    last: Option<i64>,
    /// Whether more may be there.
    is_cut: bool,
}

impl Found {
    fn of<'a>(found: impl IntoIterator<Item = &'a Row>, limit: usize) -> Result<Self, StoreError> {
        let read: Vec<_> = found.into_iter().map(event).collect();
        let count = read.len();
        let events = until_unreadable(read)?;
        let bytes: usize = events
            .iter()
            .map(|event| event.event.payload.bytes().len())
            .sum();
        Ok(Self {
            last: events.last().map(|event| event.position),
            is_cut: count >= limit || events.len() < count || bytes > READ_BYTES / 2,
            events,
        })
    }
}

fn row_is_empty(row: &Row) -> bool {
    row.get::<_, Option<i64>>(0).is_none()
}

/// What the first row says of the server, and up to which id it was looked for what is late.
fn sight(found: &[Row]) -> Result<(Sight, Option<i64>), StoreError> {
    let row = found
        .first()
        .ok_or_else(|| corrupt("a look at the outbox showed nothing"))?;
    let text: &str = row.get(11);
    let snapshot = Snapshot::parse(text);
    let (written, flushed): (Option<i64>, Option<i64>) = (row.get(14), row.get(15));
    let Some((written, flushed)) = written.zip(flushed) else {
        // Its snapshots do not say who is writing.
        return Err(unavailable("the outbox is not read on a standby"));
    };
    let sight = Sight {
        snapshot: snapshot.ok_or_else(|| corrupt(format!("snapshot {text:?}")))?,
        age: row.get(12),
        last: row.get(13),
        written,
        flushed,
    };
    Ok((sight, row.get(16)))
}

/// What comes before the first row that cannot be read; its error, when nothing does.
pub(crate) fn until_unreadable<R>(rows: Vec<Result<R, StoreError>>) -> Result<Vec<R>, StoreError> {
    let mut readable = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            Ok(row) => readable.push(row),
            Err(error) if readable.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(readable)
}

/// Reads an event from the first eleven columns of a row.
pub(crate) fn event(row: &Row) -> Result<Arc<OutboxEvent>, StoreError> {
    let position: i64 = row
        .try_get(0)
        .map_err(|error| corrupt(format!("event: {error}")))?;
    columns(row, position)
        .map(Arc::new)
        .map_err(|what| corrupt(format!("event {position}: {what}")))
}

fn columns(row: &Row, position: i64) -> Result<OutboxEvent, String> {
    let bad = |error: tokio_postgres::Error| error.to_string();
    let id: &str = row.try_get(1).map_err(bad)?;
    let tenant: Option<String> = row.try_get(3).map_err(bad)?;
    let kind: Option<String> = row.try_get(4).map_err(bad)?;
    let about: Option<String> = row.try_get(5).map_err(bad)?;
    let (headers, payload) = unseal(row.try_get(8).map_err(bad)?, row.try_get(7).map_err(bad)?)?;
    let moment = |column| row.try_get::<_, Option<Moment>>(column).map_err(bad);
    let event = Event {
        id: id.parse().map_err(|error| format!("event id: {error}"))?,
        kind: row.try_get(2).map_err(bad)?,
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| error.to_string())?,
        aggregate: kind.zip(about).map(|(kind, id)| Aggregate { kind, id }),
        sequence: row.try_get(6).map_err(bad)?,
        payload,
        headers,
        created_at: moment(9)?.ok_or("it has no moment")?.0,
        available_at: moment(10)?.map(|at| at.0),
    };
    Ok(OutboxEvent { position, event })
}

/// A bound as a parameter.
pub(crate) fn rows(bound: usize) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}

/// A retention in milliseconds, no longer than the database can count back from now.
fn age(retention: Duration) -> i64 {
    const CENTURIES: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;
    millis(retention).min(CENTURIES)
}

/// Whether a statement divided by zero, which is how ours say no.
pub(crate) fn is_refused(cause: &Flight) -> bool {
    matches!(cause, Flight::Failed(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO))
}

/// The start of a transaction whose statements each see what others have committed since.
pub(crate) fn begin(store: &Postgres) -> String {
    let begin = idempotency::begin(store);
    format!("{begin}; SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
}
