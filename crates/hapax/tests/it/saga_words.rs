//! Signals that arrive while a worker runs the saga: every committed signal is handled.

use std::{
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use hapax::{
    Clock,
    event::Headers,
    saga::{
        Call, Definition, Direction, Found, Outcome, RemoteStep, RetryPolicy, Runner, SagaRecord,
        Settings, State, Step, StepState,
    },
    sink::BoxError,
    store::{Keys, SagaRows, Transaction},
};
use hapax_sqlite::{Sqlite, Tx};
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    wait::eventually,
};
use tokio::task;

use crate::{
    saga_stage::{LEASE, begin, completed, ended, read, run, run_with, start_as, until},
    stage::{PATIENCE, Stage},
};

/// Shorter than a lease, so that a call that takes longer is still owned by its worker.
const DEADLINE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_wait_is_not_in_vain_when_its_word_came_before_its_end() {
    let stage = Stage::new();
    let teller = Teller::of(&stage, "answered");
    // The signal arrives while the saga is owned, and the wait is over as soon as it starts.
    let definition = Definition::new("checkout", 1)
        .step(Step::remote("ask", teller.clone()))
        .step(Step::wait("answer", "answered", Duration::ZERO));
    let saga = run_to_end(&stage, &teller, definition).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.made("answer").map(AsRef::as_ref), Some(&b"said"[..]));
}

#[tokio::test]
async fn a_step_is_not_undone_that_was_settled_before_its_saga_turned_round() {
    let stage = Stage::new();
    let teller = Teller::of(&stage, "shipped");
    teller.loses(DEADLINE);
    let step = Step::remote("ship", teller.clone())
        .compensate_remote(teller.clone())
        .compensate_unknown()
        .settled_by("shipped");
    let definition = Definition::new("checkout", 1).deadline(DEADLINE).step(step);
    let saga = run_to_end(&stage, &teller, definition).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.step("ship", Direction::Compensate), None);
}

#[tokio::test]
async fn a_step_is_not_refused_once_a_signal_says_that_it_happened() {
    let stage = Stage::new();
    let teller = Teller::of(&stage, "shipped");
    teller.loses(Duration::ZERO);
    teller.when_looked_up();
    let retry_policy = RetryPolicy {
        window: Duration::ZERO,
        settle_time: Duration::ZERO,
        ..RetryPolicy::default()
    };
    let step = Step::remote("ship", teller.clone())
        .retry_policy(retry_policy)
        .settled_by("shipped");
    let definition = Definition::new("checkout", 1).step(step);
    let saga = run_to_end(&stage, &teller, definition).await;
    assert_eq!(saga.status.state, State::Completed);
}

#[tokio::test]
async fn a_word_that_settles_what_a_person_was_asked_is_one_commit_and_outlives_its_failure() {
    let stage = Stage::new();
    let runner = run_with(&stage, asking(&stage), LEASE);
    start_as(&stage, "s1", &asking(&stage)).await;
    begun(&stage).await;
    let asked = until(&stage, "s1", State::NeedsAttention).await;
    let spoil = "CREATE TRIGGER refuse BEFORE UPDATE OF state ON hapax_saga
        WHEN OLD.state = 'needs_attention' BEGIN SELECT raise(ABORT, 'no'); END";
    stage.execute(spoil).await;
    tell(&stage.store, "s1", "captured").await;
    // The saga is taken once because of the signal, and again because handling it failed.
    eventually(PATIENCE, async || {
        stage.clock.advance(Duration::from_millis(500));
        read(&stage).await.epoch >= asked.epoch + 2
    })
    .await;
    let saga = read(&stage).await;
    assert_eq!(saga.status.state, State::NeedsAttention);
    let step = saga.step("capture", Direction::Forward).unwrap();
    assert_eq!(
        step.state,
        StepState::Open,
        "the step was written without the state of the saga"
    );
    stage.execute("DROP TRIGGER refuse").await;
    completed(&stage, runner).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_word_that_comes_while_a_runner_drains_is_the_next_ones() {
    let stage = Stage::new();
    let gate = Gate::default();
    let settings = Settings::new(gate.clock(&stage.clock), seeded_random(3));
    let wake = stage.store.notifier();
    let runner = Runner::spawn(&stage.store, vec![asking(&stage)], settings, &wake);
    eventually(PATIENCE, async || gate.0.looks.get().is_some()).await;
    start_as(&stage, "s1", &asking(&stage)).await;
    begun(&stage).await;
    let asked = until(&stage, "s1", State::NeedsAttention).await;
    let shut = gate.shut();
    tell(&stage.store, "s1", "captured").await;
    eventually(PATIENCE, async || read(&stage).await.epoch > asked.epoch).await;
    let mut draining = Box::pin(runner.drain());
    assert!(draining.as_mut().now_or_never().is_none());
    drop(shut);
    draining.await;
    let saga = read(&stage).await;
    assert_eq!(saga.status.state, State::NeedsAttention);
    assert!(saga.wake_at.is_some(), "the saga must be due again");
    let runner = run(&stage, asking(&stage));
    completed(&stage, runner).await;
}

/// Runs one saga to its end, while the teller sends its signal.
async fn run_to_end(stage: &Stage, teller: &Teller, definition: Definition<Tx>) -> SagaRecord {
    let runner = begin(stage, definition).await;
    begun(stage).await;
    let saga = ended(stage, runner).await;
    assert!(teller.0.has_spoken.load(Ordering::SeqCst));
    saga
}

/// Waits for the first step. The clock does not advance, so the deadline does not pass before it.
async fn begun(stage: &Stage) {
    eventually(PATIENCE, async || !read(stage).await.steps.is_empty()).await;
}

/// A checkout whose only step has an unknown outcome, until a signal says that it happened.
fn asking(stage: &Stage) -> Definition<Tx> {
    let silent = Teller::of(stage, "captured");
    silent.loses(DEADLINE);
    silent.0.has_spoken.store(true, Ordering::SeqCst);
    Definition::new("checkout", 1)
        .deadline(DEADLINE)
        .step(Step::remote("capture", silent).settled_by("captured"))
}

async fn tell(store: &Sqlite, id: &str, word: &str) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    assert!(tx.signal_saga(id, word, b"said").await.unwrap());
    tx.commit().await.unwrap();
}

/// A remote system whose signal about a call arrives before the response to it.
#[derive(Clone)]
struct Teller(Arc<Inner>);

struct Inner {
    store: Sqlite,
    clock: ManualClock,
    word: &'static str,
    /// How long a call takes whose response is lost; `None` if no response is lost.
    loses_after: Mutex<Option<Duration>>,
    speaks_late: AtomicBool,
    has_spoken: AtomicBool,
}

impl Teller {
    fn of(stage: &Stage, word: &'static str) -> Self {
        Self(Arc::new(Inner {
            store: stage.store.clone(),
            clock: stage.clock.clone(),
            word,
            loses_after: Mutex::new(None),
            speaks_late: AtomicBool::new(false),
            has_spoken: AtomicBool::new(false),
        }))
    }

    /// Loses every response, after this time.
    fn loses(&self, after: Duration) {
        *self.0.loses_after.lock().unwrap() = Some(after);
    }

    /// Sends the signal when the call is looked up, not when it is made.
    fn when_looked_up(&self) {
        self.0.speaks_late.store(true, Ordering::SeqCst);
    }

    async fn speak(&self, id: &str) {
        if !self.0.has_spoken.swap(true, Ordering::SeqCst) {
            tell(&self.0.store, id, self.0.word).await;
        }
    }
}

impl RemoteStep for Teller {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async move {
            if !self.0.speaks_late.load(Ordering::SeqCst) {
                self.speak(&call.saga).await;
            }
            let loses_after = *self.0.loses_after.lock().unwrap();
            let Some(after) = loses_after else {
                return Outcome::Done(Bytes::new());
            };
            self.0.clock.advance(after);
            Outcome::Unknown("the response was lost".into())
        })
    }

    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        Some(Box::pin(async move {
            self.speak(&call.saga).await;
            Found::Absent
        }))
    }
}

/// A clock that blocks the task that runs a saga when it reads the time, and never the task that
/// looks for sagas.
#[derive(Clone, Default)]
struct Gate(Arc<Held>);

#[derive(Default)]
struct Held {
    /// The first task that read the time: at that moment there was no saga to run.
    looks: OnceLock<task::Id>,
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn clock(&self, time: &ManualClock) -> Clock {
        let (gate, time) = (self.clone(), time.clone());
        Clock::new(move || {
            let held = &gate.0;
            if *held.looks.get_or_init(task::id) != task::id() {
                let is_shut = held.is_shut.lock().unwrap();
                drop(held.opened.wait_while(is_shut, |it| *it).unwrap());
            }
            time.now()
        })
    }

    /// Closes the gate until the guard is dropped.
    fn shut(&self) -> Shut {
        *self.0.is_shut.lock().unwrap() = true;
        Shut(self.clone())
    }
}

struct Shut(Gate);

impl Drop for Shut {
    fn drop(&mut self) {
        let held = &self.0.0;
        *held.is_shut.lock().unwrap() = false;
        held.opened.notify_all();
    }
}
