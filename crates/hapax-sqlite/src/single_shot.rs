//! Single-shot requests: one job runs the claim, the statements, the events and the response.
//!
//! The job first inserts the completed key row, which shows whether the key was free. Many requests
//! share one commit; a request that fails only rolls back its own savepoint.

use hapax::{
    idempotency::{Claim, SingleShot},
    outbox::Draft,
    seeded::{self, Bug},
    store::{Ran, StoreError},
};
use rusqlite::params_from_iter;

use crate::{
    idempotency::{Statement, StoredAnswer, claim_completed, complete, known, looked, retention},
    outbox,
    sqlite::Sqlite,
    writer::Desk,
};

/// Runs a single-shot request.
pub(crate) async fn run(store: &Sqlite, shot: SingleShot<Statement>) -> Result<Ran, StoreError> {
    let SingleShot {
        mut claim,
        statements,
        events,
        answer,
        deadline,
    } = shot;
    let mut draft = Draft::of(&mut claim);
    for event in events {
        draft.seal(event, store.clock(), store.random(), store.keyring())?;
    }
    let mut events = draft.into_events();
    if seeded::has(Bug::PublishBeforeCommit) {
        outbox::append_apart(store, std::mem::take(&mut events)).await?;
    }
    if seeded::has(Bug::CheckThenInsert)
        && let Some(known) = looked(store, &claim).await?
    {
        return Ok(Ran::Known(known));
    }
    let answer = StoredAnswer::of(store.keyring(), Some(&claim.scope), &answer)?;
    let run = move |desk: &mut Desk| {
        if let Some(taken) = claim_or_known(desk, &claim, &answer)? {
            return Ok(Ran::Known(taken));
        }
        for statement in &statements {
            execute(desk, statement)?;
        }
        if seeded::has(Bug::OutboxOutside) {
            desk.commit_early()?;
        }
        outbox::append(desk, &events)?;
        if seeded::has(Bug::AnswerOutside) {
            desk.commit_early()?;
            complete(desk, &claim, desk.now(), &answer)?;
        }
        Ok(Ran::Committed {
            fresh_for: retention(&claim),
        })
    };
    store.submit_by(deadline, run).await
}

fn claim_or_known(
    desk: &Desk,
    claim: &Claim,
    answer: &StoredAnswer,
) -> Result<Option<hapax::idempotency::Known>, StoreError> {
    if seeded::has(Bug::CheckThenInsert) {
        return complete(desk, claim, desk.now(), answer).map(|()| None);
    }
    if seeded::has(Bug::AnswerOutside) {
        return known(desk, claim);
    }
    if claim_completed(desk, claim, answer)? {
        return Ok(None);
    }
    let known = known(desk, claim)?;
    if known.is_none() {
        complete(desk, claim, desk.now(), answer)?;
    }
    Ok(known)
}

fn execute(desk: &Desk, statement: &Statement) -> Result<(), StoreError> {
    desk.foreign(|conn| {
        let mut prepared = conn.prepare_cached(&statement.sql)?;
        if prepared.column_count() == 0 {
            return prepared
                .execute(params_from_iter(&statement.params))
                .map(drop);
        }
        // A statement that returns rows only runs to its end if they are read.
        let mut rows = prepared.query(params_from_iter(&statement.params))?;
        while rows.next()?.is_some() {}
        Ok(())
    })
}
