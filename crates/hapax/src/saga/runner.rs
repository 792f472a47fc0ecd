//! Saga workers: take the sagas that are due, run each as far as possible, and release it.
//!
//! A saga is owned under an epoch for the time of a lease, which every commit renews. If a worker
//! dies, the lease expires, and the next owner continues where the rows end. A worker leaves sagas
//! of kinds and versions that it does not know to others.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use metrics::{counter, gauge};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{Definition, Kind, Move, Owned, SagaRecord, State, execution::Execution, next};
use crate::{
    clock::{Clock, Random},
    failpoint::Failpoints,
    limits,
    notify::{Notifier, Subscription},
    retry::Delays,
    store::{SagaRows, Sagas, StoreError},
    telemetry,
    trace::Traces,
};

/// Shortest poll interval, for sagas that are due but cannot be taken.
const SHORTEST: Duration = Duration::from_millis(10);

/// The settings of a saga runner.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The clock for deadlines and waits. If several nodes share a store, it is the clock of the
    /// store.
    pub clock: Clock,
    /// The source of randomness for jitter.
    pub random: Random,
    /// How long a saga keeps its owner after the worker has died.
    pub lease: Duration,
    /// Maximum number of sagas that run at the same time.
    pub at_once: usize,
    /// Failpoints for tests.
    pub failpoints: Failpoints,
    /// Whether steps are traced. The trace context of a saga is passed on in any case.
    pub traces: Traces,
}

impl Settings {
    /// Leases of 10 s, and 32 sagas at the same time.
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

/// Runs the sagas of a store.
#[derive(Debug)]
pub struct Runner;

impl Runner {
    /// Runs sagas of these definitions until the handle is drained or dropped.
    ///
    /// `notifier` belongs to the store and notifies when a saga was started or has received a
    /// signal.
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
        let running = async move {
            tokio::select! {
                () = workers.run(subscription) => {}
                () = reporting => {}
            }
        };
        let running = tokio::spawn(running.boxed());
        RunnerHandle { stop, running }
    }
}

/// A running saga runner.
#[derive(Debug)]
pub struct RunnerHandle {
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl RunnerHandle {
    /// Takes no more sagas, waits for the commit of every running move, and releases the sagas.
    pub async fn drain(mut self) {
        self.stop.send_replace(true);
        // If the task has panicked, there is nothing to drain.
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
    /// The names of the known kinds, of any version.
    fn names(&self) -> HashSet<String> {
        self.kinds.iter().map(|kind| kind.name.clone()).collect()
    }

    async fn run(mut self, mut subscription: Subscription) {
        let mut driven = JoinSet::new();
        let mut delays = Delays::new(limits::STORE_BACKOFF);
        // Whether no saga is known to be due.
        let mut is_poll = false;
        while !*self.stopping.borrow_and_update() {
            while driven.try_join_next().is_some() {}
            let pause = match self.take(&mut driven, is_poll).await {
                Ok(pause) => {
                    delays.reset();
                    pause
                }
                Err(error) => {
                    tracing::warn!(
                        error = error.error_chain(),
                        "the sagas that are due cannot be read"
                    );
                    delays.advance()
                }
            };
            is_poll = false;
            tokio::select! {
                () = subscription.notified() => {}
                () = sleep(pause) => is_poll = pause >= limits::SAGA_POLL,
                _ = driven.join_next(), if driven.len() >= self.settings.at_once => {}
                changed = self.stopping.changed() => if changed.is_err() { break },
            }
        }
        while driven.join_next().await.is_some() {}
    }

    /// Takes the sagas that are due and starts them. Returns how long to wait for the next ones.
    ///
    /// A poll first asks whether any saga is due, which changes nothing in the store.
    async fn take(&self, driven: &mut JoinSet<()>, is_poll: bool) -> Result<Duration, StoreError> {
        if is_poll {
            let wait = self.wait().await?;
            if !wait.is_zero() {
                return Ok(wait.clamp(SHORTEST, limits::SAGA_POLL));
            }
        }
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
                driven.spawn(worker.drive(saga).boxed());
            }
            if is_all {
                return Ok(self.wait().await?.clamp(SHORTEST, limits::SAGA_POLL));
            }
        }
    }

    /// How long it takes until the next saga is due.
    async fn wait(&self) -> Result<Duration, StoreError> {
        let due = self.store.next_saga(&self.kinds).await?;
        let now = self.settings.clock.now();
        Ok(due.map_or(limits::SAGA_POLL, |due| due.since(now)))
    }
}

struct Driver<S: Sagas<Tx: SagaRows>> {
    store: S,
    known: Arc<HashMap<Kind, Definition<S::Tx>>>,
    settings: Arc<Settings>,
    stopping: watch::Receiver<bool>,
}

impl<S: Sagas<Tx: SagaRows>> Driver<S> {
    /// Runs a saga as far as possible.
    async fn drive(self, saga: SagaRecord) {
        let Some(definition) = self.known.get(&saga.kind) else {
            return;
        };
        let mut execution = Execution {
            store: &self.store,
            definition,
            settings: &self.settings,
            owned: Owned::of(&saga),
            saga,
            is_signalled: false,
        };
        let rest = match self.go_on(&mut execution).await {
            Ok(rest) => rest,
            Err(StoreError::Fenced) => {
                tracing::info!(
                    saga = execution.owned.id,
                    "another worker owns the saga now"
                );
                return;
            }
            Err(error) => {
                tracing::warn!(
                    saga = execution.owned.id,
                    error = error.error_chain(),
                    "the saga is interrupted by an error of the store"
                );
                if execution.saga.status.state == State::NeedsAttention {
                    // A signal has arrived about an outcome that was unknown, and has not been
                    // applied. If the saga were released, it would wait for an operator again.
                    // Instead its lease expires, and it is due then.
                    return;
                }
                let pause = match &error {
                    StoreError::Conflict { .. } => limits::STORE_BACKOFF.0,
                    _ => limits::STORE_BACKOFF.1,
                };
                let waiting_for = format!("the store: {}", error.error_chain());
                Some(Rest::of(&execution.saga, pause, waiting_for))
            }
        };
        let Some(rest) = rest else {
            return;
        };
        let given =
            self.store
                .give_back_saga(&execution.owned, rest.pause, &rest.waiting_for, rest.heeded);
        if let Err(error) = given.await {
            // Its lease expires, and the next owner takes it.
            tracing::warn!(
                saga = execution.owned.id,
                error = error.error_chain(),
                "the saga could not be released; it continues when its lease expires"
            );
        }
    }

    /// Makes moves until there is nothing to do. Returns how the saga is released, unless it has
    /// ended.
    async fn go_on(&self, execution: &mut Execution<'_, S>) -> Result<Option<Rest>, StoreError> {
        loop {
            let now = self.settings.clock.now();
            let step = next(execution.definition, &execution.saga, now);
            let rest = |pause, waiting_for: &str| Rest::of(&execution.saga, pause, waiting_for);
            match execution.saga.status.state {
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
            if execution.is_signalled {
                return Ok(Some(rest(Duration::ZERO, "a worker")));
            }
            if *self.stopping.borrow() {
                // The next worker handles further signals. A saga that needs attention becomes due
                // when it receives one.
                let rest = rest(Duration::ZERO, "a worker");
                return Ok(Some(Rest { heeded: 0, ..rest }));
            }
            execution.make(step).await?;
            Self::say(&execution.saga);
        }
    }

    /// Reports the state of a saga in metrics and the log.
    fn say(saga: &SagaRecord) {
        let status = &saga.status;
        let (kind, outcome) = (saga.kind.name.clone(), status.state.as_str());
        // Only the code, because a provider's message may contain anything.
        let error_code = status.reason.as_ref().map(|why| why.code.as_str());
        let correlation_id = saga.headers.get("correlation_id");
        match status.state {
            State::Running => return,
            State::NeedsAttention => {
                tracing::error!(
                    saga = saga.id,
                    kind,
                    from_state = "running",
                    to_state = outcome,
                    correlation_id,
                    error_code,
                    "the saga needs attention: an operator has to decide how it continues"
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
                    "the saga has ended"
                );
            }
        }
        counter!(telemetry::SAGAS, "kind" => kind, "outcome" => outcome).increment(1);
    }
}

/// How a saga is released.
struct Rest {
    pause: Duration,
    waiting_for: String,
    /// The number of signals that were handled. If there are more, the saga is due at once.
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

/// Reports the number of sagas that need attention while it is polled: of the known kinds, and of
/// other kinds that have or had some.
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
                    "cannot count the sagas that need attention"
                );
            }
        }
        sleep(limits::REPORT).await;
    }
}
