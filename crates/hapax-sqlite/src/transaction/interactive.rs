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
    idempotency::{Claim, Taken},
    inbox::Processed,
    outbox::{BuiltEvent, Draft},
    store::{ClaimOutcome, Effect, StoreError},
};
use tokio::sync::oneshot;

use crate::{
    error::unavailable,
    idempotency::{ResponseColumns, complete, retention, taken},
    inbox, outbox,
    phase::Phase,
    sqlite::Sqlite,
    transaction::Tx,
    writer::WriterContext,
    writer::job::{Job, SavepointOutcome},
};

/// The kind of a transaction.
#[derive(Debug)]
pub(crate) enum TransactionKind {
    /// It has no key.
    Nothing,
    /// It belongs to a request, and claims its key.
    Claim(Claim),
    /// It belongs to a phased request that already owns its key.
    Phase(Phase),
}

/// Opens a transaction with or without a key. If its key is running with another payload, it does not
/// wait for the writer.
pub(crate) async fn open(
    store: &Sqlite,
    under: TransactionKind,
    draft: Draft,
) -> Result<ClaimOutcome<Tx>, StoreError> {
    if let TransactionKind::Claim(claim) = &under
        && store.running().has_other_payload(claim)
    {
        return Ok(ClaimOutcome::Taken(Taken::Mismatch));
    }
    let (reply, response) = oneshot::channel();
    let interactive = InteractiveTransaction {
        store: store.clone(),
        under,
        draft: Some(draft),
        reply: Some(reply),
        taken: None,
        end: None,
    };
    store.enqueue(Box::new(interactive)).await?;
    response
        .await
        .map_err(|_| unavailable("the store is closed"))?
}

/// Work in a transaction, which may already be doomed. Returns false if it failed.
type Work = Box<dyn FnOnce(&WriterContext, bool) -> bool + Send>;

/// A request of a transaction to the writer.
pub(crate) enum Request {
    /// Run the work, unless the transaction is doomed.
    Run(Work),
    /// End the transaction.
    End {
        ending: TransactionEnd,
        events: Vec<BuiltEvent>,
        /// The messages that it has accepted.
        processed: Vec<Processed>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// How a transaction ends.
#[derive(Debug)]
pub(crate) enum TransactionEnd {
    Complete {
        response: ResponseColumns,
        effect: Effect,
    },
    Commit,
    Rollback,
}

impl TransactionEnd {
    /// Whether the rows of the transaction are to be committed.
    pub(crate) fn keeps_effect(&self) -> bool {
        match self {
            Self::Complete { effect, .. } => *effect == Effect::Keep,
            Self::Commit => true,
            Self::Rollback => false,
        }
    }
}

impl Request {
    /// Runs `work` and sends its result at once, because only this transaction uses it.
    pub(crate) fn run<R: Send + 'static>(
        work: impl FnOnce(&WriterContext) -> Result<R, StoreError> + Send + 'static,
        reply: oneshot::Sender<Result<R, StoreError>>,
    ) -> Self {
        Self::Run(Box::new(move |ctx, doomed| {
            let outcome = if doomed { Err(doom()) } else { work(ctx) };
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

struct InteractiveTransaction {
    store: Sqlite,
    under: TransactionKind,
    draft: Option<Draft>,
    /// The caller of [`open`]; `None` once it has the transaction.
    reply: Option<Reply<ClaimOutcome<Tx>>>,
    /// The claim outcome of a taken key, or the error of looking it up.
    taken: Option<Result<Taken, StoreError>>,
    /// The caller that ended the transaction, and the result.
    end: Option<(Reply<()>, Result<(), StoreError>)>,
}

impl Job for InteractiveTransaction {
    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    fn run(&mut self, ctx: &mut WriterContext) -> SavepointOutcome {
        let deadline = Instant::now() + ctx.tx_max;
        ctx.until(Some(deadline));
        let taken = match &self.under {
            TransactionKind::Claim(claim) => taken(ctx, claim),
            TransactionKind::Nothing | TransactionKind::Phase(_) => Ok(None),
        };
        match taken.transpose() {
            Some(taken) => {
                self.taken = Some(taken);
                SavepointOutcome::RollBack
            }
            None => self.serve(ctx, deadline),
        }
    }

    fn failure(&self) -> Option<&StoreError> {
        let taken = self.taken.as_ref().and_then(|taken| taken.as_ref().err());
        taken.or_else(|| self.end.as_ref()?.1.as_ref().err())
    }

    fn response(self: Box<Self>, fate: &Fate) {
        // A caller that has gone does not need the result.
        if let Some((reply, outcome)) = self.end {
            let _gone = reply.send(fate.apply(Some(outcome)));
        } else if let Some(reply) = self.reply {
            let taken = self.taken.map(|taken| taken.map(ClaimOutcome::Taken));
            let _gone = reply.send(fate.apply(taken));
        }
    }
}

impl InteractiveTransaction {
    /// Sends the transaction to its caller and runs its requests until it ends.
    fn serve(&mut self, ctx: &mut WriterContext, deadline: Instant) -> SavepointOutcome {
        let (requests, asked) = mpsc::channel();
        let (Some(reply), Some(draft)) = (self.reply.take(), self.draft.take()) else {
            return SavepointOutcome::RollBack;
        };
        let (retention, scope) = match &self.under {
            TransactionKind::Nothing => (Duration::ZERO, None),
            TransactionKind::Claim(claim) => (retention(claim), Some(&claim.scope)),
            TransactionKind::Phase(phase) => (phase.owned.retention, Some(&phase.owned.scope)),
        };
        let scope = scope.cloned();
        let store = self.store.clone();
        let running = store.running().clone();
        let _running = match &self.under {
            TransactionKind::Claim(claim) => Some(running.start(claim)),
            TransactionKind::Nothing | TransactionKind::Phase(_) => None,
        };
        let tx = Tx::new(store, requests, draft, retention, scope, deadline);
        let claimed_at = ctx.now();
        if reply.send(Ok(ClaimOutcome::Open(tx))).is_err() {
            return SavepointOutcome::RollBack;
        }
        let mut doomed = false;
        loop {
            match asked.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Request::Run(run)) => {
                    doomed |= !run(ctx, doomed);
                    if ctx.is_lost() {
                        return SavepointOutcome::RollBack;
                    }
                }
                Ok(Request::End {
                    ending,
                    events,
                    processed,
                    reply,
                }) => {
                    let written = (&*events, &*processed);
                    let outcome = self.end(ctx, ending, written, doomed, claimed_at);
                    let verdict = *outcome.as_ref().unwrap_or(&SavepointOutcome::RollBack);
                    self.end = Some((reply, outcome.map(drop)));
                    return verdict;
                }
                Err(RecvTimeoutError::Disconnected) => return SavepointOutcome::RollBack,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("transaction took too long and was rolled back");
                    return SavepointOutcome::RollBack;
                }
            }
        }
    }

    fn end(
        &self,
        ctx: &mut WriterContext,
        ending: TransactionEnd,
        (events, processed): (&[BuiltEvent], &[Processed]),
        doomed: bool,
        claimed_at: Timestamp,
    ) -> Result<SavepointOutcome, StoreError> {
        let mut transaction = outbox::transaction(ctx, events);
        let response = match ending {
            TransactionEnd::Rollback => return Ok(SavepointOutcome::RollBack),
            TransactionEnd::Complete {
                response,
                effect: Effect::Drop,
            } => {
                ctx.rewind()?;
                transaction = None;
                Some(response)
            }
            _ if doomed => return Err(doom()),
            TransactionEnd::Commit => {
                outbox::append(ctx, events)?;
                inbox::processed(ctx, processed)?;
                None
            }
            TransactionEnd::Complete {
                response,
                effect: Effect::Keep,
            } => {
                outbox::append(ctx, events)?;
                inbox::processed(ctx, processed)?;
                Some(response)
            }
        };
        match (&self.under, response) {
            (TransactionKind::Claim(claim), Some(response)) => {
                complete(ctx, claim, claimed_at, &response, transaction)?;
            }
            (TransactionKind::Phase(phase), Some(response)) => {
                phase.finish(ctx, &response, transaction)?;
            }
            (TransactionKind::Phase(phase), None) => phase.advance(ctx, transaction)?,
            (TransactionKind::Nothing, _) | (TransactionKind::Claim(_), None) => {}
        }
        Ok(SavepointOutcome::Keep)
    }
}

/// The error for a transaction in which an earlier statement failed.
fn doom() -> StoreError {
    StoreError::statement("an earlier statement of this transaction failed")
}
