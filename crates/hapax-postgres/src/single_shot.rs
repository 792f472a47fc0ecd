//! A request that says beforehand all that it will write, alone or in a group.
//!
//! Requests in flight together go as one transaction in one flight (`group`). What that does not
//! settle (a key that is stored or being used, a statement that fails, an answer that is lost)
//! goes on alone, here: in one flight of its own, or, where its key is not free, by way of a
//! claim.

use hapax::{
    event::Headers,
    group::{Turn, answered},
    idempotency::{Answer, Claim, SingleShot},
    outbox::{Draft, Sealed},
    seeded::{self, Bug},
    store::{Effect, Ran, StoreError, Transaction as _},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    connection::Flight,
    emit::Columns,
    error::{store_error, unavailable},
    group::{CAREFUL, Group, is_not_free},
    idempotency::{Found, Held, StoredAnswer, hold, retention},
    postgres::Postgres,
    query, resolve,
    seeded::emit_apart,
    session::Session,
    statement::{Statement, calls},
    transaction::Tx,
};

/// A request on its way through a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) claim: Claim,
    pub(crate) statements: Vec<Statement>,
    pub(crate) events: Vec<Sealed>,
    pub(crate) answer: Answer,
    pub(crate) stored: StoredAnswer,
    turn: Turn,
    reply: oneshot::Sender<Result<Ran, StoreError>>,
}

/// Runs a request in one go.
pub(crate) async fn run(store: &Postgres, shot: SingleShot<Statement>) -> Result<Ran, StoreError> {
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
    let stored = StoredAnswer::of(store.keyring(), &claim.scope, &answer)?;
    let mut events = draft.into_events();
    if seeded::has(Bug::PublishBeforeCommit) {
        emit_apart(store, &std::mem::take(&mut events)).await;
    }
    let (reply, told) = oneshot::channel();
    let turn = Turn::default();
    let member = Member {
        claim,
        statements,
        events,
        stored,
        answer,
        turn: turn.clone(),
        reply,
    };
    if goes_step_by_step() {
        return Box::pin(by_claim(store, &member)).await;
    }
    let closed = || unavailable("the store is closed");
    answered(store.queue(), member, &turn, told, deadline, closed).await
}

impl Member {
    /// Whether anybody still waits for it; asked once, just before it begins.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.reply.is_closed() && self.turn.take()
    }

    /// Tells the requester what came of it.
    pub(crate) fn answer(self, outcome: Result<Ran, StoreError>) {
        // A requester that has gone does not need to know.
        let _gone = self.reply.send(outcome);
    }

    pub(crate) fn committed(&self) -> Ran {
        Ran::Committed {
            fresh_for: retention(&self.claim),
        }
    }
}

/// Runs a request alone, again where it lost against another one.
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
    member.answer(outcome);
}

/// Finds out what became of a request whose group's answer was lost, and runs it if nothing did.
pub(crate) async fn resolved(store: &Postgres, member: Member) {
    match resolve::committed(store, &member.claim, &member.answer).await {
        Ok(()) => {
            store.notifier().notify();
            let ran = member.committed();
            member.answer(Ok(ran));
        }
        Err(StoreError::Conflict { .. }) => alone(store, member, None).await,
        Err(error) => member.answer(Err(error)),
    }
}

/// In one flight, in the hope that the key is free.
///
/// The lane is given back before anything is waited for but the flight.
async fn once(
    store: &Postgres,
    member: &Member,
    lane: &mut Option<OwnedSemaphorePermit>,
) -> Result<Ran, StoreError> {
    let mut session = Session::open(store).await?;
    let group = if lane.is_some() {
        Group::of(store, vec![member])
    } else {
        Group::of_one(store, member)
    };
    let crash = match group.fly_in_hope(&mut session).await {
        Ok(()) => {
            session.end();
            group.landed();
            return Ok(member.committed());
        }
        Err(crash) => crash,
    };
    drop(lane.take());
    if crash.cause.is_unknown() {
        session.discard();
        Box::pin(resolve::committed(store, &member.claim, &member.answer)).await?;
        store.notifier().notify();
        return Ok(member.committed());
    }
    session.rollback().await;
    match crash.cause {
        Flight::Failed(error) if is_not_free(crash.leg, &error) => {
            store.lose_hope(CAREFUL);
            Box::pin(by_claim(store, member)).await
        }
        Flight::Failed(error) => Err(store_error(error)),
        Flight::Lost => Err(Flight::Lost.into()),
    }
}

/// Whether a seeded bug is in what comes between the statements of one flight.
fn goes_step_by_step() -> bool {
    seeded::has(Bug::CheckThenInsert)
        || seeded::has(Bug::AnswerOutside)
        || seeded::has(Bug::OutboxOutside)
}

/// The key is stored or being used: claims it as any request does, waiting a while.
async fn by_claim(store: &Postgres, member: &Member) -> Result<Ran, StoreError> {
    let (session, row) = match hold(store, &member.claim).await? {
        Found::Taken(known) => return Ok(Ran::Known(known)),
        Found::Free(session, row) => (session, row),
    };
    let held = Held {
        claim: member.claim.clone(),
        row,
    };
    let draft = Draft::new(None, Headers::new());
    let mut tx = Tx::new(store, *session, draft, Some(held));
    let (mut events, mut late) = (member.events.as_slice(), [].as_slice());
    if seeded::has(Bug::OutboxOutside) {
        (events, late) = (late, events);
    }
    if let Err(error) = tx.write(&member.statements, events).await {
        tx.rollback().await;
        return Err(error);
    }
    let fresh_for = tx.complete(&member.answer, Effect::Keep).await?;
    emit_apart(store, late).await;
    if !member.events.is_empty() {
        store.notifier().notify();
    }
    Ok(Ran::Committed { fresh_for })
}

impl Tx {
    /// Runs a request's statements and appends its events.
    async fn write(
        &mut self,
        statements: &[Statement],
        events: &[Sealed],
    ) -> Result<(), StoreError> {
        let calls = calls(std::iter::once(statements));
        let columns = Columns::of(&events.iter().collect::<Vec<_>>());
        self.ask(async |link| {
            for (call, prepared) in calls.iter().zip(link.prepare_all(&calls).await?) {
                link.call(call, prepared.as_ref()).await?;
            }
            if !columns.is_empty() {
                link.ask(query!("outbox/emit"), &columns.params()).await?;
            }
            Ok(())
        })
        .await
    }
}
