//! The writer's side of an interactive transaction.
//!
//! The job claims the key, sends the [`Tx`] to its caller, and serves it until the transaction
//! ends. All of this runs inside one savepoint of the group. The job waits for the next request of
//! the transaction on a channel, never longer than `tx_max`, so that a stalled handler cannot hold
//! the writer. Only the open [`Tx`] is returned before the commit of the group. Results that a
//! client may see (a replay, the end of the transaction) wait for that commit.

use std::{
    fmt,
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use hapax::{
    Timestamp,
    group::Fate,
    idempotency::{Claim, Known},
    outbox::{Draft, Sealed},
    seeded::{self, Bug},
    store::{Claimed, Effect, StoreError},
};
use tokio::sync::oneshot;

use crate::{
    error::unavailable,
    idempotency::{StoredAnswer, complete, known, retention},
    job::{Job, Verdict},
    outbox,
    phases::Phase,
    sqlite::Sqlite,
    transaction::Tx,
    writer::Desk,
};

/// The kind of a transaction.
#[derive(Debug)]
pub(crate) enum Under {
    /// It has no key.
    Nothing,
    /// It belongs to a request, and claims its key.
    Claim(Claim),
    /// It belongs to a phased request that already owns its key.
    Phase(Phase),
}

/// Opens a transaction with or without a key.
pub(crate) async fn open(
    store: &Sqlite,
    under: Under,
    draft: Draft,
) -> Result<Claimed<Tx>, StoreError> {
    let (reply, answer) = oneshot::channel();
    let dialogue = Dialogue {
        store: store.clone(),
        under,
        draft: Some(draft),
        reply: Some(reply),
        known: None,
        end: None,
    };
    store.enqueue(Box::new(dialogue)).await?;
    answer
        .await
        .map_err(|_| unavailable("the store is closed"))?
}

/// Work in a transaction, which may already be doomed. Returns false if it failed.
type Work = Box<dyn FnOnce(&Desk, bool) -> bool + Send>;

/// A request of a transaction to the writer.
pub(crate) enum Request {
    /// Run the work, unless the transaction is doomed.
    Run(Work),
    /// End the transaction.
    End {
        ending: Ending,
        events: Vec<Sealed>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// How a transaction ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Complete {
        answer: StoredAnswer,
        effect: Effect,
    },
    Commit,
    Rollback,
}

impl Request {
    /// Runs `work` and sends its result at once, because only this transaction uses it.
    pub(crate) fn run<R: Send + 'static>(
        work: impl FnOnce(&Desk) -> Result<R, StoreError> + Send + 'static,
        reply: oneshot::Sender<Result<R, StoreError>>,
    ) -> Self {
        Self::Run(Box::new(move |desk, doomed| {
            let outcome = if doomed { Err(doom()) } else { work(desk) };
            let went_well = outcome.is_ok();
            // If the caller has gone, the channel reports it at the next request.
            let _gone = reply.send(outcome);
            went_well
        }))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(_) => f.write_str("Run"),
            Self::End { ending, .. } => f.debug_tuple("End").field(ending).finish(),
        }
    }
}

type Reply<R> = oneshot::Sender<Result<R, StoreError>>;

struct Dialogue {
    store: Sqlite,
    under: Under,
    draft: Option<Draft>,
    /// The caller of [`open`]; `None` once it has the transaction.
    reply: Option<Reply<Claimed<Tx>>>,
    /// The claim outcome of a taken key, or the error of looking it up.
    known: Option<Result<Known, StoreError>>,
    /// The caller that ended the transaction, and the result.
    end: Option<(Reply<()>, Result<(), StoreError>)>,
}

impl Job for Dialogue {
    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    fn run(&mut self, desk: &mut Desk) -> Verdict {
        let deadline = Instant::now() + desk.tx_max;
        desk.until(Some(deadline));
        let taken = match &self.under {
            Under::Claim(claim) if !seeded::has(Bug::CheckThenInsert) => known(desk, claim),
            Under::Nothing | Under::Claim(_) | Under::Phase(_) => Ok(None),
        };
        match taken.transpose() {
            Some(known) => {
                self.known = Some(known);
                Verdict::RollBack
            }
            None => self.serve(desk, deadline),
        }
    }

    fn failure(&self) -> Option<&StoreError> {
        let known = self.known.as_ref().and_then(|known| known.as_ref().err());
        known.or_else(|| self.end.as_ref()?.1.as_ref().err())
    }

    fn answer(self: Box<Self>, fate: &Fate) {
        // A caller that has gone does not need the result.
        if let Some((reply, outcome)) = self.end {
            let _gone = reply.send(fate.apply(Some(outcome)));
        } else if let Some(reply) = self.reply {
            let known = self.known.map(|known| known.map(Claimed::Known));
            let _gone = reply.send(fate.apply(known));
        }
    }
}

impl Dialogue {
    /// Sends the transaction to its caller and runs its requests until it ends.
    fn serve(&mut self, desk: &mut Desk, deadline: Instant) -> Verdict {
        let (requests, asked) = mpsc::channel();
        let (Some(reply), Some(draft)) = (self.reply.take(), self.draft.take()) else {
            return Verdict::RollBack;
        };
        let (retention, scope) = match &self.under {
            Under::Nothing => (Duration::ZERO, None),
            Under::Claim(claim) => (retention(claim), Some(&claim.scope)),
            Under::Phase(phase) => (phase.owned.retention, Some(&phase.owned.scope)),
        };
        let scope = scope.cloned();
        let store = self.store.clone();
        let tx = Tx::new(store, requests, draft, retention, scope, deadline);
        let claimed_at = desk.now();
        if reply.send(Ok(Claimed::Open(tx))).is_err() {
            return Verdict::RollBack;
        }
        let mut doomed = false;
        loop {
            match asked.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Request::Run(run)) => {
                    doomed |= !run(desk, doomed);
                    if desk.is_lost() {
                        return Verdict::RollBack;
                    }
                }
                Ok(Request::End {
                    ending,
                    events,
                    reply,
                }) => {
                    let outcome = self.end(desk, ending, &events, doomed, claimed_at);
                    let verdict = *outcome.as_ref().unwrap_or(&Verdict::RollBack);
                    self.end = Some((reply, outcome.map(drop)));
                    return verdict;
                }
                Err(RecvTimeoutError::Disconnected) => return Verdict::RollBack,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("transaction took too long and was rolled back");
                    return Verdict::RollBack;
                }
            }
        }
    }

    fn end(
        &self,
        desk: &mut Desk,
        ending: Ending,
        events: &[Sealed],
        doomed: bool,
        claimed_at: Timestamp,
    ) -> Result<Verdict, StoreError> {
        let mut late = [].as_slice();
        let mut events = events;
        if seeded::has(Bug::OutboxOutside) {
            (events, late) = (late, events);
        }
        let answer = match ending {
            Ending::Rollback => return Ok(Verdict::RollBack),
            Ending::Complete {
                answer,
                effect: Effect::Drop,
            } => {
                desk.rewind()?;
                late = &[];
                Some(answer)
            }
            _ if doomed => return Err(doom()),
            Ending::Commit => {
                outbox::append(desk, events)?;
                None
            }
            Ending::Complete {
                answer,
                effect: Effect::Keep,
            } => {
                outbox::append(desk, events)?;
                Some(answer)
            }
        };
        match (&self.under, answer) {
            (Under::Claim(claim), Some(answer)) => {
                if seeded::has(Bug::AnswerOutside) {
                    desk.commit_early()?;
                }
                complete(desk, claim, claimed_at, &answer)?;
            }
            (Under::Phase(phase), Some(answer)) => phase.finish(desk, &answer)?,
            (Under::Phase(phase), None) => phase.advance(desk)?,
            (Under::Nothing, _) | (Under::Claim(_), None) => {}
        }
        if seeded::has(Bug::OutboxOutside) {
            desk.commit_early()?;
            outbox::append(desk, late)?;
        }
        Ok(Verdict::Keep)
    }
}

/// The error for a transaction in which an earlier statement failed.
fn doom() -> StoreError {
    StoreError::Statement {
        source: "an earlier statement of this transaction failed".into(),
    }
}
