//! Sagas in trouble: clocks that were ahead, providers that forget keys, steps that panic early,
//! refusals that are too long.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    limits::ERROR_BYTES,
    saga::{
        Call, Definition, Direction, Found, LocalStep, OnEnd, Outcome, Refusal, RemoteStep,
        RetryPolicy, SagaRecord, State, Step, StepState,
    },
    sink::BoxError,
};
use hapax_sqlite::Tx;
use hapax_testkit::wait::eventually;

use crate::{
    saga_stage::{
        LEASE,
        Local::{Nothing, Refuses},
        begin, completed, ended_at_once, read, run, run_with, start_as, until,
    },
    stage::{PATIENCE, Stage},
};

const DAYS: Duration = Duration::from_hours(72);

#[tokio::test]
async fn a_call_of_a_clock_that_was_ahead_is_looked_up_and_not_made_again() {
    let stage = Stage::new();
    let right = stage.clock.now();
    stage.clock.advance(DAYS);
    let far = Far::default();
    let definition = Definition::new("checkout", 1)
        .deadline(Duration::from_hours(1))
        .step(Step::remote("authorize", far.clone()));
    let runner = begin(&stage, definition).await;
    eventually(PATIENCE, async || far.calls() == 1).await;
    stage.clock.set(right);
    completed(&stage, runner).await;
    assert_eq!(far.calls(), 1);
}

/// The call may have been made just now and may still arrive: the clock does not show its age.
#[tokio::test]
async fn that_nothing_happened_is_not_believed_of_a_call_of_a_clock_that_was_ahead() {
    let stage = Stage::new();
    let right = stage.clock.now();
    let deadline = Duration::from_hours(10);
    let far = Far::default();
    far.forgets();
    let definition = Definition::new("checkout", 1)
        .deadline(deadline)
        .step(Step::remote("authorize", far.clone()));
    start_as(&stage, "s1", &definition).await;
    stage.clock.advance(deadline / 2);
    let runner = run(&stage, definition);
    eventually(PATIENCE, async || far.calls() == 1).await;
    stage.clock.set(right);
    eventually(PATIENCE, async || {
        stage.clock.advance(Duration::from_millis(500));
        far.look_ups() > 1
    })
    .await;
    let saga = read(&stage).await;
    runner.drain().await;
    let step = saga.step("authorize", Direction::Forward).unwrap();
    assert_eq!((step.state, far.calls()), (StepState::Open, 1));
}

#[tokio::test]
async fn a_wait_of_a_clock_that_was_ahead_is_counted_again() {
    let stage = Stage::new();
    let right = stage.clock.now();
    stage.clock.advance(DAYS);
    let rest = Duration::from_mins(2);
    let definition = Definition::new("checkout", 1).step(Step::pause("rest", rest));
    let runner = begin(&stage, definition).await;
    let has_begun = async || {
        let saga = read(&stage).await;
        saga.step("rest", Direction::Forward).is_some() && saga.waiting_for.is_some()
    };
    eventually(PATIENCE, has_begun).await;
    stage.clock.set(right);
    let saga = completed(&stage, runner).await;
    let took = saga.ended_at.unwrap().since(right);
    assert!(took >= rest && took < 10 * rest, "{took:?}");
}

/// A day after the first call the provider has forgotten the key: that it does not know the key
/// proves nothing.
#[tokio::test]
async fn that_a_provider_knows_nothing_of_an_old_key_is_not_believed() {
    for direction in [Direction::Forward, Direction::Compensate] {
        let stage = Stage::new();
        let far = Far::default();
        let retry_policy = RetryPolicy {
            pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(10),
            ..RetryPolicy::default()
        };
        let definition = || {
            let step = match direction {
                Direction::Forward => Step::remote("authorize", far.clone()),
                Direction::Compensate => {
                    Step::local("authorize", Nothing).compensate_remote(far.clone())
                }
            };
            Definition::new("checkout", 1)
                .deadline(DAYS)
                .step(step.retry_policy(retry_policy))
                .step(Step::local("check", Refuses))
        };
        let runner = run_with(&stage, definition(), LEASE);
        start_as(&stage, "s1", &definition()).await;
        eventually(PATIENCE, async || far.calls() == 1).await;
        // Like a crash. After it no worker runs for more than a day.
        drop(runner);
        stage.clock.advance(Duration::from_hours(25));
        far.forgets();
        let runner = run_with(&stage, definition(), LEASE);
        eventually(PATIENCE, async || far.look_ups() > 0).await;
        if direction == Direction::Forward {
            stage.clock.advance(DAYS);
        }
        let saga = until(&stage, "s1", State::NeedsAttention).await;
        runner.drain().await;
        assert_eq!(far.calls(), 1, "{direction:?}");
        let reason = saga.status.reason.unwrap();
        assert!(reason.detail.contains("forgotten"), "{reason}");
    }
}

/// The function itself panics, before it returns a future.
#[tokio::test]
async fn what_panics_before_it_begins_is_counted_and_asks_a_person() {
    let retry_policy = RetryPolicy {
        pause: Duration::from_millis(100),
        pause_max: Duration::from_millis(100),
        window: Duration::from_secs(5),
        ..RetryPolicy::default()
    };
    let undo = [
        Step::local("reserve", Nothing).compensate_local(Panics),
        Step::local("reserve", Nothing).compensate_remote(Panics),
    ];
    for step in undo {
        let stage = Stage::new();
        let definition = Definition::new("checkout", 1)
            .step(step.retry_policy(retry_policy))
            .step(Step::local("check", Refuses));
        let runner = begin(&stage, definition).await;
        let saga = until(&stage, "s1", State::NeedsAttention).await;
        runner.drain().await;
        assert_eq!(saga.status.reason.unwrap().code, "compensation_failed");
    }
}

#[tokio::test]
async fn an_end_that_panics_before_it_begins_is_left_to_a_person() {
    let stage = Stage::new();
    let definition = Definition::new("checkout", 1)
        .deadline(Duration::from_secs(1))
        .step(Step::local("reserve", Nothing))
        .on_end(Panics);
    let runner = begin(&stage, definition).await;
    eventually(PATIENCE, async || {
        let saga = read(&stage).await;
        saga.step("reserve", Direction::Forward).is_some()
    })
    .await;
    stage.clock.advance(Duration::from_hours(2));
    let saga = until(&stage, "s1", State::NeedsAttention).await;
    runner.drain().await;
    assert_eq!(saga.status.reason.unwrap().code, "ending");
}

#[tokio::test]
async fn what_a_provider_says_is_kept_as_far_as_it_can_be() {
    let stage = Stage::new();
    let definition = Definition::new("checkout", 1).step(Step::remote("authorize", Wordy));
    let runner = begin(&stage, definition).await;
    let saga = ended_at_once(&stage, runner).await;
    let why = saga
        .step("authorize", Direction::Forward)
        .unwrap()
        .error
        .clone()
        .unwrap();
    let reason = saga.status.reason.unwrap();
    for why in [why, reason] {
        assert!(why.code.len() <= ERROR_BYTES && why.detail.len() <= ERROR_BYTES);
        // PostgreSQL cannot store a text with a zero byte.
        assert!(!why.code.contains('\0') && !why.detail.contains('\0'));
        assert!(why.detail.starts_with("no\u{fffd}"));
    }
}

/// A remote system that executes a call once, loses the response, and knows the key until it
/// forgets it.
#[derive(Clone, Default)]
struct Far(Arc<Counts>);

#[derive(Default)]
struct Counts {
    calls: AtomicU32,
    look_ups: AtomicU32,
    forgotten: AtomicU32,
}

impl Far {
    fn calls(&self) -> u32 {
        self.0.calls.load(Ordering::SeqCst)
    }

    fn look_ups(&self) -> u32 {
        self.0.look_ups.load(Ordering::SeqCst)
    }

    fn forgets(&self) {
        self.0.forgotten.store(1, Ordering::SeqCst);
    }
}

impl RemoteStep for Far {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Outcome::Unknown("the response was lost".into()) })
    }

    fn look_up<'a>(&'a self, _: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        self.0.look_ups.fetch_add(1, Ordering::SeqCst);
        Some(Box::pin(async {
            if self.0.forgotten.load(Ordering::SeqCst) > 0 {
                return Found::Absent;
            }
            Found::Done(Bytes::new())
        }))
    }
}

/// Panics in the function itself, before it returns a future.
struct Panics;

impl LocalStep<Tx> for Panics {
    fn run<'a>(
        &'a self,
        _: &'a mut Tx,
        _: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        panic!("on purpose")
    }
}

impl RemoteStep for Panics {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        panic!("on purpose")
    }

    fn look_up<'a>(&'a self, _: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        panic!("on purpose")
    }
}

impl OnEnd<Tx> for Panics {
    fn write<'a>(
        &'a self,
        _: &'a mut Tx,
        _: &'a SagaRecord,
        _: State,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        panic!("on purpose")
    }
}

/// A remote system that refuses with a very long message.
struct Wordy;

impl RemoteStep for Wordy {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        let detail = format!("no\0{}", "é".repeat(1 << 20));
        Box::pin(async { Outcome::Refused(Refusal::new("n\0", detail)) })
    }
}
