//! Single-shot requests: one job runs the claim, the statements, the events and the response.
//!
//! The job first inserts the completed key row, which shows whether the key was free. Many requests
//! share one commit; a request that fails only rolls back its own savepoint.

use std::time::Duration;

use hapax::{
    idempotency::{Claim, PlannedRequest, Taken},
    outbox::Draft,
    store::{ClaimOutcome, StoreError},
};
use rusqlite::params_from_iter;

use crate::{
    idempotency::{ResponseColumns, Statement, claim_completed, complete, retention, taken},
    outbox,
    sqlite::Sqlite,
    writer::WriterContext,
};

/// Runs a single-shot request.
pub(crate) async fn run(
    store: &Sqlite,
    planned: PlannedRequest<Statement>,
) -> Result<ClaimOutcome<Duration>, StoreError> {
    let PlannedRequest {
        mut claim,
        statements,
        events,
        response,
        deadline,
    } = planned;
    if store.running().has_other_payload(&claim) {
        return Ok(ClaimOutcome::Taken(Taken::Mismatch));
    }
    let mut draft = Draft::of(&mut claim);
    for event in events {
        draft.add(
            event,
            store.clock(),
            store.random(),
            store.keyring(),
            store.event_check(),
        )?;
    }
    let events = draft.into_events();
    let response = ResponseColumns::of(store.keyring(), Some(&claim.scope), &response)?;
    let run = move |ctx: &mut WriterContext| {
        let transaction = outbox::transaction(ctx, &events);
        if let Some(taken) = claim_or_known(ctx, &claim, &response, transaction)? {
            return Ok(ClaimOutcome::Taken(taken));
        }
        for statement in &statements {
            execute(ctx, statement)?;
        }
        outbox::append(ctx, &events)?;
        Ok(ClaimOutcome::Open(retention(&claim)))
    };
    store.submit_by(deadline, run).await
}

fn claim_or_known(
    ctx: &WriterContext,
    claim: &Claim,
    response: &ResponseColumns,
    transaction: Option<i64>,
) -> Result<Option<Taken>, StoreError> {
    if claim_completed(ctx, claim, response, transaction)? {
        return Ok(None);
    }
    let taken = taken(ctx, claim)?;
    if taken.is_none() {
        complete(ctx, claim, ctx.now(), response, transaction)?;
    }
    Ok(taken)
}

fn execute(ctx: &WriterContext, statement: &Statement) -> Result<(), StoreError> {
    ctx.foreign(|conn| {
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
