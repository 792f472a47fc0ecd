//! The workers that drive sagas: take what is due, move it as far as it goes, give it back.
//!
//! A saga is held by its epoch for a lease, which every commit renews. A worker that dies lets it
//! lapse, and whoever takes the saga next goes on where its rows end. Kinds and versions that a
//! worker does not know stay with who does.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use metrics::{counter, gauge};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{Definition, Kind, Move, Owned, SagaRecord, State, next, turn::Turn};
use crate::{
    clock::{Clock, Random},
    failpoint::Failpoints,
    limits,
    notify::{Notifier, Subscription},
    store::{SagaRows, Sagas, StoreError},
    telemetry,
    trace::Traces,
};

/// The shortest time between two looks: what is due and cannot be taken is not asked for at once.
const SHORTEST: Duration = Duration::from_millis(10);

/// How sagas are driven.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The clock that deadlines and waits go by: the store's, where several nodes share it.
    pub clock: Clock,
    /// Where jitter comes from.
    pub random: Random,
    /// How long a saga stays a dead worker's.
    pub lease: Duration,
    /// How many sagas are driven at once.
    pub at_once: usize,
    /// Places where a test strikes.
    pub failpoints: Failpoints,
    /// Whether steps are traced; what a saga carries travels on in any case.
    pub traces: Traces,
}

impl Settings {
    /// Leases of 10 s, and 32 sagas at once.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            lease: limits::LEASE,
            at_once: limits::SAGAS_AT_ONCE,
            failpoints: Failpoints::none(),
            traces: Traces::off(),
        }
    }
}

/// Drives the sagas of a store.
#[derive(Debug)]
pub struct Runner;

impl Runner {
    /// Drives sagas of these definitions until the handle drains or is dropped.
    ///
    /// `notifier` is the store's subscription: it rings when a saga was started or told something.
    pub fn spawn<S: Sagas<Tx: SagaRows>>(
        store: &S,
        definitions: Vec<Definition<S::Tx>>,
        settings: Settings,
        notifier: &Notifier,
    ) -> RunnerHandle {
        let (stop, stopping) = watch::channel(false);
        let definitions = definitions.into_iter();
        let known: HashMap<_, _> = definitions
            .map(|definition| (definition.kind().clone(), definition))
            .collect();
        let workers = Workers {
            store: store.clone(),
            kinds: known.keys().cloned().collect(),
            known: Arc::new(known),
            settings: Arc::new(settings),
            stopping,
        };
        let (reporting, subscription) =
            (report(store.clone(), workers.names()), notifier.subscribe());
        let running = tokio::spawn(async move {
            tokio::select! {
                () = workers.run(subscription) => {}
                () = reporting => {}
            }
        });
        RunnerHandle { stop, running }
    }
}

/// Workers that run.
#[derive(Debug)]
pub struct RunnerHandle {
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl RunnerHandle {
    /// Takes no more sagas, lets every move under way come to its commit, and gives back.
    pub async fn drain(mut self) {
        self.stop.send_replace(true);
        // One that panicked has nothing left to drain.
        let _ended = (&mut self.running).await;
    }
}

impl Drop for RunnerHandle {
    fn drop(&mut self) {
        self.running.abort();
    }
}

struct Workers<S: Sagas<Tx: SagaRows>> {
    store: S,
    kinds: Vec<Kind>,
    known: Arc<HashMap<Kind, Definition<S::Tx>>>,
    settings: Arc<Settings>,
    stopping: watch::Receiver<bool>,
}

impl<S: Sagas<Tx: SagaRows>> Workers<S> {
    /// The names of the kinds that are known here, whatever their versions.
    fn names(&self) -> HashSet<String> {
        self.kinds.iter().map(|kind| kind.name.clone()).collect()
    }

    async fn run(mut self, mut subscription: Subscription) {
        let mut driven = JoinSet::new();
        let (mut backoff, longest) = limits::STORE_BACKOFF;
        while !*self.stopping.borrow_and_update() {
            while driven.try_join_next().is_some() {}
            let pause = match self.take(&mut driven).await {
                Ok(pause) => {
                    backoff = limits::STORE_BACKOFF.0;
                    pause
                }
                Err(error) => {
                    tracing::warn!(error = error.error_chain(), "cannot look for sagas");
                    backoff = (backoff * 2).min(longest);
                    backoff
                }
            };
            tokio::select! {
                () = subscription.notified() => {}
                () = sleep(pause) => {}
                _ = driven.join_next(), if driven.len() >= self.settings.at_once => {}
                changed = self.stopping.changed() => if changed.is_err() { break },
            }
        }
        while driven.join_next().await.is_some() {}
    }

    /// Takes what is due and sets it going; returns how long there is nothing to do.
    async fn take(&self, driven: &mut JoinSet<()>) -> Result<Duration, StoreError> {
        loop {
            let free = self.settings.at_once.saturating_sub(driven.len());
            if free == 0 {
                return Ok(limits::SAGA_POLL);
            }
            let lease = self.settings.lease;
            let taken = self.store.take_sagas(&self.kinds, lease, free).await?;
            let is_all = taken.len() < free;
            for saga in taken {
                let worker = Driver {
                    store: self.store.clone(),
                    known: Arc::clone(&self.known),
                    settings: Arc::clone(&self.settings),
                    stopping: self.stopping.clone(),
                };
                driven.spawn(worker.drive(saga));
            }
            if is_all {
                let due = self.store.next_saga(&self.kinds).await?;
                let now = self.settings.clock.now();
                let wait = due.map_or(limits::SAGA_POLL, |due| due.since(now));
                return Ok(wait.clamp(SHORTEST, limits::SAGA_POLL));
            }
        }
    }
}

struct Driver<S: Sagas<Tx: SagaRows>> {
    store: S,
    known: Arc<HashMap<Kind, Definition<S::Tx>>>,
    settings: Arc<Settings>,
    stopping: watch::Receiver<bool>,
}

impl<S: Sagas<Tx: SagaRows>> Driver<S> {
    /// Moves a saga as far as it goes now.
    async fn drive(self, saga: SagaRecord) {
        let Some(definition) = self.known.get(&saga.kind) else {
            return;
        };
        let mut turn = Turn {
            store: &self.store,
            definition,
            settings: &self.settings,
            owned: Owned::of(&saga),
            saga,
            is_told: false,
        };
        let rest = match self.go_on(&mut turn).await {
            Ok(rest) => rest,
            Err(StoreError::Fenced) => {
                tracing::info!(saga = turn.owned.id, "another worker has the saga now");
                return;
            }
            Err(error) => {
                tracing::warn!(
                    saga = turn.owned.id,
                    error = error.error_chain(),
                    "a saga halts"
                );
                if turn.saga.standing.state == State::NeedsAttention {
                    // It was told what nobody knew, and is not settled: given back, it would wait
                    // for a person again. It lapses instead, and falls due with its lease.
                    return;
                }
                let pause = match &error {
                    StoreError::Conflict { .. } => limits::STORE_BACKOFF.0,
                    _ => limits::STORE_BACKOFF.1,
                };
                let waiting_for = format!("the store: {}", error.error_chain());
                Some(Rest::of(&turn.saga, pause, waiting_for))
            }
        };
        let Some(rest) = rest else {
            return;
        };
        let given =
            self.store
                .give_back_saga(&turn.owned, rest.pause, &rest.waiting_for, rest.heeded);
        if let Err(error) = given.await {
            // Its lease lapses, and whoever comes then takes it.
            tracing::warn!(
                saga = turn.owned.id,
                error = error.error_chain(),
                "a saga lapses"
            );
        }
    }

    /// Moves until there is nothing to do; returns how it rests then, unless that is for ever.
    async fn go_on(&self, turn: &mut Turn<'_, S>) -> Result<Option<Rest>, StoreError> {
        loop {
            let now = self.settings.clock.now();
            let step = next(turn.definition, &turn.saga, now);
            let rest = |pause, waiting_for: &str| Rest::of(&turn.saga, pause, waiting_for);
            match turn.saga.standing.state {
                State::Running => {}
                State::NeedsAttention => {
                    let settles = matches!(
                        step,
                        Move::Settle {
                            signal: Some(_),
                            ..
                        }
                    );
                    if !settles {
                        return Ok(Some(rest(Duration::ZERO, "a person")));
                    }
                }
                State::Completed | State::Failed => return Ok(None),
            }
            if let Move::Sleep { until, waiting_for } = step {
                return Ok(Some(rest(until.since(now), &waiting_for)));
            }
            if turn.is_told {
                return Ok(Some(rest(Duration::ZERO, "a worker")));
            }
            if *self.stopping.borrow() {
                // Whatever it was told is the next worker's: one that asks a person falls due.
                let rest = rest(Duration::ZERO, "a worker");
                return Ok(Some(Rest { heeded: 0, ..rest }));
            }
            turn.make(step).await?;
            Self::say(&turn.saga);
        }
    }

    /// Tells metrics and the log where a saga has come to.
    fn say(saga: &SagaRecord) {
        let standing = &saga.standing;
        let (kind, outcome) = (saga.kind.name.clone(), standing.state.as_str());
        // Only the word: what a provider said may hold anything.
        let error_code = standing.reason.as_ref().map(|why| why.code.as_str());
        let correlation_id = saga.headers.get("correlation_id");
        match standing.state {
            State::Running => return,
            State::NeedsAttention => {
                tracing::error!(
                    saga = saga.id,
                    kind,
                    from_state = "running",
                    to_state = outcome,
                    correlation_id,
                    error_code,
                    "a person has to decide how a saga goes on"
                );
            }
            State::Completed | State::Failed => {
                tracing::info!(
                    saga = saga.id,
                    kind,
                    from_state = "running",
                    to_state = outcome,
                    correlation_id,
                    error_code,
                    "a saga has ended"
                );
            }
        }
        counter!(telemetry::SAGAS, "kind" => kind, "outcome" => outcome).increment(1);
    }
}

/// How a saga is given back.
struct Rest {
    pause: Duration,
    waiting_for: String,
    /// How much of what it was told has been acted on; for more than that it falls due at once.
    heeded: usize,
}

impl Rest {
    fn of(saga: &SagaRecord, pause: Duration, waiting_for: impl Into<String>) -> Self {
        Self {
            pause,
            waiting_for: waiting_for.into(),
            heeded: saga.signals.len(),
        }
    }
}

/// Reports how many sagas need attention, for as long as it is polled: of the kinds that are known
/// here, and of any other that has some or had.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a double; counts stay far below 2^53"
)]
async fn report<S: Sagas>(store: S, mut names: HashSet<String>) {
    loop {
        match store.sagas_in_attention().await {
            Ok(counted) => {
                let counted: HashMap<String, u64> = counted.into_iter().collect();
                names.extend(counted.keys().cloned());
                for name in &names {
                    let count = counted.get(name).copied().unwrap_or_default();
                    gauge!(telemetry::SAGA_NEEDS_ATTENTION, "kind" => name.clone())
                        .set(count as f64);
                }
            }
            Err(error) => {
                tracing::debug!(
                    error = error.error_chain(),
                    "cannot count sagas in attention"
                );
            }
        }
        sleep(limits::REPORT).await;
    }
}
