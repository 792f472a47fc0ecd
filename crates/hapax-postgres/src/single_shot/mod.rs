//! Single-shot requests, whose writes are all known before they run.
//!
//! Concurrent requests are written by one transaction in one pipeline (`group`). A request that is
//! not finished by that (its key is taken, a statement fails, the result of the commit is lost) is
//! run alone by this module: in one pipeline, or with a regular claim if its key is not free.
//!
//! At its deadline a request is rolled back: the server cancels the running statement. A commit that
//! was sent is not cancelled, and its result is the result of the request. A request whose deadline has
//! passed is not sent.

pub(crate) mod group;

use std::time::Duration;

use hapax::{
    event::Headers,
    group::{StartOnce, answered},
    idempotency::PlannedRequest,
    outbox::{BuiltEvent, Draft},
    store::{ClaimOutcome, Effect, StoreError, Transaction as _},
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    claim::hold,
    commit_recovery::{self, IfAbsent},
    connection::QueryError,
    emit::Columns,
    ending_keyword::ending_keyword,
    error::{ends_transaction, lost, own_error, store_error, unavailable},
    idempotency::{ClaimedKey, ResponseColumns},
    member::Member,
    postgres::Postgres,
    query,
    single_shot::group::{CAREFUL, Group, is_not_free, is_own, is_unknown},
    statement::{Statement, calls},
    transaction::Tx,
};

/// Runs a single-shot request.
pub(crate) async fn run(
    store: &Postgres,
    planned: PlannedRequest<Statement>,
) -> Result<ClaimOutcome<Duration>, StoreError> {
    let PlannedRequest {
        mut claim,
        statements,
        events,
        response,
        deadline,
    } = planned;
    // It would commit the keys of its whole group without the statements that follow it.
    let mut texts = statements.iter().map(|statement| &statement.sql);
    if let Some(keyword) = texts.find_map(|sql| ending_keyword(sql)) {
        return Err(ends_transaction(keyword));
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
    let stored = ResponseColumns::of(store.keyring(), &claim.scope, &response)?;
    let (reply, outcome) = oneshot::channel();
    let turn = StartOnce::default();
    let member = Member {
        claim,
        statements,
        events: draft.into_events(),
        stored,
        response,
        deadline: deadline.map(Instant::from_std),
        turn: turn.clone(),
        reply,
    };
    let closed = || unavailable("the store is closed");
    answered(store.queue(), member, &turn, outcome, deadline, closed).await
}

/// Runs a request alone, and again if it conflicts with another transaction.
pub(crate) async fn alone(
    store: &Postgres,
    member: Member,
    mut lane: Option<OwnedSemaphorePermit>,
) {
    let mut outcome = once(store, &member, &mut lane).await;
    let mut reruns = store.settings().reruns_max;
    while matches!(outcome, Err(StoreError::Conflict { .. })) && reruns > 0 {
        reruns -= 1;
        outcome = once(store, &member, &mut lane).await;
    }
    member.response(outcome);
}

/// Finds out whether a request was committed if the result of its group was lost, and runs it if it
/// was not.
pub(crate) async fn resolved(store: &Postgres, member: Member) {
    let if_absent = IfAbsent::RunAgain;
    let committed = commit_recovery::committed(store, &member.claim, if_absent, &member.response);
    match committed.await {
        Ok(()) => {
            store.notifier().notify();
            let ran = member.committed();
            member.response(Ok(ran));
        }
        Err(StoreError::Conflict { .. }) => alone(store, member, None).await,
        Err(error) => member.response(Err(error)),
    }
}

/// Runs a request once, in one pipeline with an optimistic claim.
///
/// The lane is released before this function waits for anything other than the pipeline.
async fn once(
    store: &Postgres,
    member: &Member,
    lane: &mut Option<OwnedSemaphorePermit>,
) -> Result<ClaimOutcome<Duration>, StoreError> {
    if member.is_late() {
        return Err(StoreError::TimedOut);
    }
    let session = until(member.deadline, Box::pin(store.session())).await;
    let mut session = session.unwrap_or(Err(StoreError::TimedOut))?;
    let has_lane = lane.is_some();
    let group = if has_lane {
        Group::of(store, vec![member])
    } else {
        Group::of_one(store, member)
    };
    let failed = match group.send_optimistic(&mut session).await {
        Ok(()) => {
            session.end();
            group.completed();
            return Ok(member.committed());
        }
        Err(failed) => failed,
    };
    drop(lane.take());
    if is_unknown(&failed) {
        session.discard();
        Box::pin(commit_recovery::committed(
            store,
            &member.claim,
            IfAbsent::RunAgain,
            &member.response,
        ))
        .await?;
        store.notifier().notify();
        return Ok(member.committed());
    }
    session.rollback().await;
    match failed.cause {
        QueryError::Failed(error) if is_not_free(failed.statement, &error) => {
            store.disable_optimistic_claims(CAREFUL);
            Box::pin(by_claim(store, member)).await
        }
        QueryError::Failed(error) if is_own(failed.statement) => Err(own_error(store_error(error))),
        QueryError::Failed(error) => Err(store_error(error)),
        QueryError::Lost if member.is_late() => Err(StoreError::TimedOut),
        QueryError::Lost if has_lane => Err(lost("its statements were not prepared in time")),
        QueryError::Lost => Err(QueryError::Lost.into()),
    }
}

/// Runs a request with a regular claim, which waits for a while if the key is in use.
async fn by_claim(store: &Postgres, member: &Member) -> Result<ClaimOutcome<Duration>, StoreError> {
    // Whatever is dropped at the deadline is rolled back.
    let written = until(member.cut_at(), Box::pin(written(store, member))).await;
    let tx = match written.unwrap_or(Err(StoreError::TimedOut))? {
        ClaimOutcome::Taken(taken) => return Ok(ClaimOutcome::Taken(taken)),
        ClaimOutcome::Open(tx) => tx,
    };
    let fresh_for = tx.complete(&member.response, Effect::Keep).await?;
    if !member.events.is_empty() {
        store.notifier().notify();
    }
    Ok(ClaimOutcome::Open(fresh_for))
}

/// Claims the key of a request and runs its statements, without committing them.
async fn written(store: &Postgres, member: &Member) -> Result<ClaimOutcome<Tx>, StoreError> {
    let (session, row) = match hold(store, &member.claim).await? {
        ClaimOutcome::Taken(taken) => return Ok(ClaimOutcome::Taken(taken)),
        ClaimOutcome::Open((session, row)) => (session, row),
    };
    let held = ClaimedKey {
        claim: member.claim.clone(),
        row,
    };
    let draft = Draft::new(None, Headers::new());
    let mut tx = Tx::new(store, *session, draft, Some(held));
    if let Err(error) = tx.write(&member.statements, &member.events).await {
        tx.rollback().await;
        return Err(error);
    }
    Ok(ClaimOutcome::Open(tx))
}

/// Waits for `run`, at most until `deadline`; `None` if it was dropped.
pub(crate) async fn until<R>(deadline: Option<Instant>, run: impl Future<Output = R>) -> Option<R> {
    match deadline {
        Some(deadline) => timeout_at(deadline, run).await.ok(),
        None => Some(run.await),
    }
}

impl Tx {
    /// Runs a request's statements and appends its events.
    async fn write(
        &mut self,
        statements: &[Statement],
        events: &[BuiltEvent],
    ) -> Result<(), StoreError> {
        let calls = calls(std::iter::once(statements));
        let columns = Columns::of(&events.iter().collect::<Vec<_>>());
        self.ask(async |link| {
            for (call, prepared) in calls.iter().zip(link.prepare_all(&calls).await?) {
                link.call(call, prepared.as_ref()).await?;
            }
            Ok(())
        })
        .await?;
        if columns.is_empty() {
            return Ok(());
        }
        let emit = self.ask(async |link| link.ask(query!("outbox/emit"), &columns.params()).await);
        emit.await.map(drop).map_err(own_error)
    }
}
