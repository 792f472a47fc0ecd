//! Dead letters: list them with all attempts, make them due again, or discard them.
//!
//! These are actions of an operator, not of the owner: they have no epoch, and they notify the
//! relay.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use hapax::{
    dead_letter::DeadLetter,
    delivery::{Attempt, AttemptOutcome},
    keyring::Keyring,
    store::StoreError,
};
use tokio_postgres::Row;

use crate::{
    connection::Link,
    delivery::{pipeline_failed, settle::text},
    error::corrupt,
    outbox,
    postgres::Postgres,
    query,
    session::{QueuedStatement, Session},
    value::{Moment, Param, rows},
};

/// Lists dead letters after a position, each with its attempts.
pub(crate) async fn list(
    store: &Postgres,
    destination: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let params: [&dyn Param; 3] = [&destination, &after, &rows(limit)];
    let found = store.ask(query!("delivery/dead_letters"), &params).await?;
    let mut letters: Vec<DeadLetter> = found
        .iter()
        .map(|row| letter(row, store.keyring()))
        .collect::<Result<_, _>>()?;
    let positions: Vec<i64> = letters.iter().map(|it| it.event.position).collect();
    let mut logs: HashMap<i64, Vec<Attempt>> = HashMap::new();
    let at: Vec<_> = positions.into_iter().map(|it| (it, destination)).collect();
    for (_, attempt) in attempts(store, &at).await? {
        logs.entry(attempt.position).or_default().push(attempt);
    }
    for letter in &mut letters {
        letter.log = logs.remove(&letter.event.position).unwrap_or_default();
    }
    Ok(letters)
}

/// Reads every attempt at some deliveries, each a position at a partition, in order, with the partition of each.
pub(crate) async fn attempts(
    store: &Postgres,
    deliveries: &[(i64, &str)],
) -> Result<Vec<(String, Attempt)>, StoreError> {
    let (positions, partitions): (Vec<i64>, Vec<&str>) = deliveries.iter().copied().unzip();
    let params: [&dyn Param; 2] = [&positions, &partitions];
    let tried = store.ask(query!("delivery/attempts"), &params).await?;
    let with_partition = |row: &Row| Ok((row.get("partition"), attempt(row)?));
    tried.iter().map(with_partition).collect()
}

/// Makes a dead letter due again.
pub(crate) async fn replay(
    store: &Postgres,
    destination: &str,
    position: i64,
) -> Result<bool, StoreError> {
    let params: [&dyn Param; 3] = [&destination, &position, &store.now()];
    let mut session = store.session().await?;
    match decide(store, &mut session, query!("delivery/replay"), &params).await {
        Ok(Decided::Nothing) => {
            session.rollback().await;
            Ok(false)
        }
        Ok(_) => end(store, session).await.map(|()| true),
        Err(error) => {
            session.rollback().await;
            Err(error)
        }
    }
}

/// Discards a dead letter and releases the deliveries that it blocks.
pub(crate) async fn discard(
    store: &Postgres,
    destination: &str,
    position: i64,
    reason: &str,
) -> Result<bool, StoreError> {
    let (now, reason) = (store.now(), text(reason));
    let params: [&dyn Param; 4] = [&destination, &position, &now, &reason];
    let mut session = store.session().await?;
    let discarded = decide(store, &mut session, query!("delivery/discard"), &params).await;
    let released = match discarded {
        Ok(Decided::Nothing) => {
            session.rollback().await;
            return Ok(false);
        }
        Ok(Decided::Yes(None)) => Ok(()),
        Ok(Decided::Yes(Some(key))) => release(&mut session, destination, &key, now).await,
        Err(error) => Err(error),
    };
    match released {
        Ok(()) => end(store, session).await.map(|()| true),
        Err(error) => {
            session.rollback().await;
            Err(error)
        }
    }
}

/// The result of an operator's decision about a dead letter.
enum Decided {
    /// There is none.
    Nothing,
    /// It is taken; the key that the letter held up.
    Yes(Option<String>),
}

/// Opens a transaction that holds the destination, and decides in it.
async fn decide(
    store: &Postgres,
    session: &mut Session,
    sql: &'static str,
    params: &[&dyn Param],
) -> Result<Decided, StoreError> {
    let begin = store.begin_read_committed();
    let sql = [query!("delivery/hold"), sql];
    let ready = session.run(async |link| link.ready(sql).await).await?;
    let [hold, decide] = &ready;
    let results = session.pipeline_from(Some(&begin), |link: &Link| -> Vec<QueuedStatement<'_>> {
        vec![
            Box::pin(link.rows(hold, &params[..1])),
            Box::pin(link.rows(decide, params)),
        ]
    });
    let completed = results.await.map_err(pipeline_failed)?;
    Ok(match completed[2].first() {
        None => Decided::Nothing,
        Some(row) => Decided::Yes(row.try_get(0).unwrap_or_default()),
    })
}

async fn release(
    session: &mut Session,
    destination: &str,
    key: &str,
    now: Moment,
) -> Result<(), StoreError> {
    let params: [&dyn Param; 3] = [&destination, &vec![key], &now];
    let released = session.run(async |link| link.ask(query!("delivery/release"), &params).await);
    released.await.map(drop).map_err(Into::into)
}

async fn end(store: &Postgres, mut session: Session) -> Result<(), StoreError> {
    store.settings().failpoints.hit("postgres.commit.before");
    if let Err(flight) = session.run(async |link| link.run("COMMIT").await).await {
        session.rollback().await;
        return Err(flight.into());
    }
    session.end();
    store.settings().failpoints.hit("postgres.commit.after");
    store.notifier().notify();
    Ok(())
}

fn letter(row: &Row, keyring: &Keyring) -> Result<DeadLetter, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("dead letter: {error}"));
    Ok(DeadLetter {
        event: outbox::event(row, keyring)?,
        attempts: row
            .try_get::<_, i32>("attempt")
            .map_err(bad)?
            .unsigned_abs(),
        last_error: row
            .try_get::<_, Option<String>>("last_error")
            .map_err(bad)?
            .unwrap_or_default(),
        died_at: row.try_get::<_, Moment>("changed_at").map_err(bad)?.0,
        log: Vec::new(),
    })
}

fn attempt(row: &Row) -> Result<Attempt, StoreError> {
    let bad = |error: tokio_postgres::Error| corrupt(format!("attempt: {error}"));
    let outcome: &str = row.try_get("outcome").map_err(bad)?;
    let status: Option<i16> = row.try_get("status").map_err(bad)?;
    Ok(Attempt {
        position: row.try_get("position").map_err(bad)?,
        number: row.try_get::<_, i32>("number").map_err(bad)?.unsigned_abs(),
        started_at: row.try_get::<_, Moment>("started_at").map_err(bad)?.0,
        duration: Duration::from_millis(
            row.try_get::<_, i64>("duration_ms")
                .map_err(bad)?
                .unsigned_abs(),
        ),
        outcome: AttemptOutcome::parse(outcome)
            .ok_or_else(|| corrupt(format!("attempt that ended {outcome:?}")))?,
        status: status.map(i16::unsigned_abs),
        error: row.try_get("error").map_err(bad)?,
        response_head: Bytes::copy_from_slice(row.try_get("response_head").map_err(bad)?),
    })
}
