//! Tests of the guarantees of the saga runner, with a real store and providers that fail.

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
    event::{Headers, NewEvent},
    saga::{
        Decision, Definition, Direction, OnEnd, Owned, RetryPolicy, SagaRecord, State, Step,
        StepState,
    },
    sink::BoxError,
    store::{Keys, SagaRecords, SagaRows, Sagas, Transaction},
};
use hapax_sqlite::Tx;
use hapax_testkit::wait::eventually;

use crate::{
    saga_provider::{Clumsy, Far, Late, Overtaken, Reply},
    saga_stage::{
        LEASE,
        Local::{Refuses, Swallows, Writes},
        begin, completed, ended, ended_at_once, kinds, read, run, run_with, stage_ended, start_as,
        until,
    },
    stage::{PATIENCE, Stage},
};

#[tokio::test]
async fn a_saga_runs_its_steps_in_order_and_tells_of_its_end() {
    let (stage, far) = scene();
    let runner = begin(&stage, definition(&far)).await;
    let saga = ended_at_once(&stage, runner).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
    assert_eq!(rows(&saga), ["reserve", "authorize", "ship", "capture"]);
    assert_eq!(
        saga.made("ship").map(AsRef::as_ref),
        Some(&b"ship made"[..])
    );
    assert_eq!(kinds(&stage).await, ["reserved", "saga.completed"]);
}

#[tokio::test]
async fn a_refusal_undoes_what_was_done_in_reverse() {
    let (stage, far) = scene();
    far.now("ship", |_| Reply::Refuse);
    let runner = begin(&stage, definition(&far)).await;
    let saga = ended_at_once(&stage, runner).await;
    assert_eq!(saga.status.state, State::Failed);
    let reason = saga.status.reason.as_ref().unwrap();
    assert_eq!(reason.code, "no");
    assert_eq!(far.effects(), ["authorize", "undo authorize"]);
    assert_eq!(kinds(&stage).await, ["reserved", "released", "saga.failed"]);
}

#[tokio::test]
async fn a_refusal_of_the_first_step_leaves_nothing_of_it() {
    let (stage, far) = scene();
    let refuses = Definition::new("checkout", 1)
        .step(Step::local("reserve", Writes("reserved")).compensate_local(Writes("released")))
        .step(Step::local("check", Refuses))
        .on_end(Tell);
    let runner = run(&stage, refuses);
    start(&stage, "s1").await;
    let saga = ended_at_once(&stage, runner).await;
    assert_eq!(saga.status.state, State::Failed);
    // The events of the refused step were rolled back with it.
    assert_eq!(kinds(&stage).await, ["reserved", "released", "saga.failed"]);
    assert!(far.effects().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_under_the_same_key() {
    let (stage, far) = scene();
    far.now("authorize", |attempt| match attempt {
        1 => Reply::DoAndLose,
        2 => Reply::Lose,
        _ => Reply::Forward,
    });
    let runner = begin(&stage, definition(&far)).await;
    let saga = completed(&stage, runner).await;
    let step = saga.step("authorize", Direction::Forward).unwrap();
    assert_eq!(step.attempts, 3);
    assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
    assert_eq!(far.keys("authorize").len(), 1);
    assert_eq!(
        far.keys("authorize").keys().next(),
        step.provider_key.as_ref()
    );
}

#[tokio::test]
async fn what_stays_unknown_is_looked_up() {
    for (reply, expected) in [
        (Reply::DoAndLose, State::Completed),
        (Reply::Lose, State::Failed),
    ] {
        let (stage, far) = scene();
        far.now("authorize", move |_| reply);
        let runner = begin(&stage, impatient(&far)).await;
        called(&far, "authorize").await;
        let saga = ended(&stage, runner).await;
        assert_eq!(saga.status.state, expected, "{reply:?}");
        let authorized = far.effects().contains(&"authorize".to_owned());
        assert_eq!(authorized, expected == State::Completed);
    }
}

#[tokio::test]
async fn what_arrived_while_the_word_that_it_had_not_was_on_its_way_is_not_forgotten() {
    let (stage, far) = scene();
    far.now("authorize", |_| Reply::Lose);
    let retry_policy = RetryPolicy {
        call: Duration::from_secs(2),
        pause: Duration::from_secs(1),
        pause_max: Duration::from_secs(1),
        window: Duration::from_secs(5),
        // No look-up follows it before the one that takes so long.
        settle_time: Duration::from_hours(1),
    };
    let overtaken = Overtaken {
        desk: far.desk("authorize"),
        clock: stage.clock.clone(),
        by: retry_policy.settle_time,
    };
    let definition = Definition::new("checkout", 1)
        .deadline(Duration::from_hours(9))
        .step(Step::remote("authorize", overtaken).retry_policy(retry_policy));
    let runner = run(&stage, definition);
    start(&stage, "s1").await;
    let saga = ended(&stage, runner).await;
    assert_eq!(far.effects(), ["authorize"]);
    assert_eq!(saga.status.state, State::Completed);
}

#[tokio::test]
async fn what_could_not_be_asked_for_in_time_is_called_for_as_long_as_any_other() {
    let (stage, far) = scene();
    far.now("authorize", |attempt| match attempt {
        1 => Reply::Lose,
        _ => Reply::Forward,
    });
    let window = RetryPolicy::default().window;
    let speaks_at = stage.clock.now().after(2 * window);
    let late = Late(far.desk("authorize"), stage.clock.clock(), speaks_at);
    let runner = run(
        &stage,
        Definition::new("checkout", 1).step(Step::remote("authorize", late)),
    );
    start(&stage, "s1").await;
    let is_meant = async || {
        let saga = read(&stage).await;
        saga.step("authorize", Direction::Forward).is_some()
    };
    eventually(PATIENCE, is_meant).await;
    stage.clock.set(speaks_at);
    completed(&stage, runner).await;
    assert_eq!(far.attempts("authorize"), 2);
    assert_eq!(far.keys("authorize").len(), 1);
}

#[tokio::test]
async fn what_nobody_can_tell_is_left_to_a_person_who_decides() {
    for (happened, expected) in [(true, State::Completed), (false, State::Failed)] {
        let (stage, far) = scene();
        far.now("authorize", |_| Reply::DoAndLose);
        far.deaf();
        let runner = begin(&stage, impatient(&far)).await;
        called(&far, "authorize").await;
        let saga = until(&stage, "s1", State::NeedsAttention).await;
        let reason = saga.status.reason.as_ref().unwrap();
        assert_eq!(reason.code, "deadline");
        let decision = if happened {
            Decision::Done {
                step: "authorize".to_owned(),
                made: Bytes::from_static(b"by hand"),
            }
        } else {
            Decision::Refused {
                step: "authorize".to_owned(),
            }
        };
        decide(&stage, "s1", &decision).await;
        let saga = ended(&stage, runner).await;
        assert_eq!(saga.status.state, expected);
    }
}

#[tokio::test]
async fn another_try_asks_first_and_calls_only_for_what_did_not_happen() {
    for (happened, can_be_asked) in [(true, true), (false, true), (false, false)] {
        let (stage, far) = scene();
        let lost = if happened {
            Reply::DoAndLose
        } else {
            Reply::Lose
        };
        far.now("authorize", move |_| lost);
        far.deaf();
        let runner = begin(&stage, impatient(&far)).await;
        called(&far, "authorize").await;
        until(&stage, "s1", State::NeedsAttention).await;
        let calls = far.attempts("authorize");
        far.now("authorize", |_| Reply::Forward);
        if can_be_asked {
            far.hears();
        }
        let retry = Decision::Retry {
            within: Duration::from_mins(5),
        };
        decide(&stage, "s1", &retry).await;
        completed(&stage, runner).await;
        let more = far.attempts("authorize") - calls;
        assert_eq!(more, u32::from(!happened), "{happened} {can_be_asked}");
        assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
    }
}

/// The remote system loses every call until the window is over and it is looked up instead.
#[tokio::test]
async fn another_try_within_the_window_stands_until_the_outcome_is_known() {
    for can_be_asked in [true, false] {
        let (stage, far) = scene();
        far.now("authorize", |_| Reply::Lose);
        if !can_be_asked {
            far.deaf();
        }
        let window = Duration::from_mins(2);
        let runner = begin(&stage, patient(&far, window, Duration::from_secs(20))).await;
        called(&far, "authorize").await;
        let saga = until(&stage, "s1", State::NeedsAttention).await;
        let closes_at = saga
            .step("authorize", Direction::Forward)
            .unwrap()
            .began_at
            .after(window);
        let retry = Decision::Retry {
            within: Duration::from_hours(1),
        };
        decide(&stage, "s1", &retry).await;
        let clock = stage.clock.clone();
        far.now("authorize", move |_| {
            if clock.now() < closes_at {
                Reply::Lose
            } else {
                Reply::Forward
            }
        });
        let calls = far.attempts("authorize");
        eventually(PATIENCE, async || {
            stage.clock.advance(Duration::from_millis(100));
            far.attempts("authorize") > calls
        })
        .await;
        let saga = ended(&stage, runner).await;
        assert_eq!(saga.status.state, State::Completed, "{can_be_asked}");
        assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
    }
}

#[tokio::test]
async fn a_word_from_the_provider_settles_what_nobody_could_tell() {
    let (stage, far) = scene();
    far.now("capture", |_| Reply::DoAndLose);
    far.deaf();
    let runner = begin(&stage, impatient(&far)).await;
    called(&far, "capture").await;
    until(&stage, "s1", State::NeedsAttention).await;
    let mut tx = stage.store.begin(None, Headers::new()).await.unwrap();
    assert!(tx.signal_saga("s1", "captured", b"it").await.unwrap());
    tx.commit().await.unwrap();
    let saga = completed(&stage, runner).await;
    assert_eq!(saga.made("capture").map(AsRef::as_ref), Some(&b"it"[..]));
}

#[tokio::test]
async fn a_saga_whose_worker_died_goes_on_where_its_rows_end() {
    let (stage, far) = scene();
    far.now("ship", |attempt| match attempt {
        1 => Reply::Hang,
        _ => Reply::Forward,
    });
    let runner = run_with(&stage, definition(&far), LEASE);
    start(&stage, "s1").await;
    eventually(PATIENCE, async || far.attempts("ship") == 1).await;
    // Like a crash: no move is completed.
    drop(runner);
    let saga = read(&stage).await;
    let ship = saga.step("ship", Direction::Forward).unwrap();
    assert_eq!((ship.state, ship.attempts), (StepState::Open, 1));
    let runner = run(&stage, definition(&far));
    stage.clock.advance(LEASE);
    completed(&stage, runner).await;
    assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
    assert_eq!(kinds(&stage).await, ["reserved", "saga.completed"]);
}

#[tokio::test]
async fn a_step_that_panics_is_tried_again_and_its_outcome_is_unknown() {
    let (stage, far) = scene();
    far.now("ship", |attempt| match attempt {
        1 => Reply::DoAndPanic,
        _ => Reply::Forward,
    });
    let runner = begin(&stage, definition(&far)).await;
    completed(&stage, runner).await;
    assert_eq!(far.effects(), ["authorize", "ship", "capture"]);
}

#[tokio::test]
async fn a_request_that_panics_is_tried_again() {
    let (stage, far) = scene();
    let clumsy = Clumsy(far.desk("authorize"), AtomicU32::new(0));
    let definition = Definition::new("checkout", 1).step(Step::remote("authorize", clumsy));
    let runner = run(&stage, definition);
    start(&stage, "s1").await;
    let saga = completed(&stage, runner).await;
    assert_eq!(
        saga.step("authorize", Direction::Forward).unwrap().attempts,
        2
    );
    assert_eq!(far.effects(), ["authorize"]);
}

#[tokio::test]
async fn a_compensation_whose_rows_are_refused_is_counted_and_asks_a_person() {
    let stage = Stage::new();
    let retry_policy = RetryPolicy {
        pause: Duration::from_millis(100),
        pause_max: Duration::from_millis(100),
        ..RetryPolicy::default()
    };
    let reserve = Step::local("reserve", Writes("reserved")).compensate_local(Swallows);
    let definition = Definition::new("checkout", 1)
        .step(reserve.retry_policy(retry_policy))
        .step(Step::local("check", Refuses));
    let runner = begin(&stage, definition).await;
    let saga = until(&stage, "s1", State::NeedsAttention).await;
    runner.drain().await;
    assert_eq!(saga.status.reason.unwrap().code, "compensation_failed");
}

#[tokio::test]
async fn an_end_that_cannot_be_written_is_left_to_a_person_in_the_end() {
    let stage = Stage::new();
    let cannot = Arc::new(AtomicU32::new(1));
    let definition = Definition::new("checkout", 1)
        .deadline(Duration::from_mins(1))
        .step(Step::local("reserve", Writes("reserved")))
        .on_end(Halting(Arc::clone(&cannot)));
    let runner = begin(&stage, definition).await;
    eventually(PATIENCE, async || cannot.load(Ordering::SeqCst) > 1).await;
    stage.clock.advance(Duration::from_mins(59));
    let tries = cannot.load(Ordering::SeqCst);
    eventually(PATIENCE, async || {
        stage.clock.advance(Duration::from_millis(100));
        cannot.load(Ordering::SeqCst) > tries
    })
    .await;
    let saga = read(&stage).await;
    assert_eq!(saga.status.state, State::Running);
    stage.clock.advance(Duration::from_mins(10));
    let saga = until(&stage, "s1", State::NeedsAttention).await;
    assert_eq!(saga.status.reason.unwrap().code, "ending");
    cannot.store(0, Ordering::SeqCst);
    let retry = Decision::Retry {
        within: Duration::from_mins(5),
    };
    decide(&stage, "s1", &retry).await;
    completed(&stage, runner).await;
}

#[tokio::test]
async fn two_workers_share_sagas_and_never_call_twice_for_one_step() {
    let (stage, far) = scene();
    let runners = [run(&stage, definition(&far)), run(&stage, definition(&far))];
    for number in 0..30 {
        start(&stage, &format!("s{number}")).await;
    }
    for number in 0..30 {
        stage_ended(&stage, &format!("s{number}")).await;
    }
    for runner in runners {
        runner.drain().await;
    }
    for step in ["authorize", "ship", "capture"] {
        assert_eq!(far.attempts(step), 30, "{step}");
    }
}

#[tokio::test]
async fn a_saga_of_another_version_is_left_to_who_knows_it() {
    let (stage, far) = scene();
    let runner = run(&stage, definition(&far));
    let newer: Definition<Tx> = Definition::new("checkout", 2);
    let mut tx = stage.store.begin(None, Headers::new()).await.unwrap();
    let saga = newer.begin("s2", None, Bytes::new());
    tx.start_saga(&saga).await.unwrap();
    tx.commit().await.unwrap();
    start(&stage, "s1").await;
    stage_ended(&stage, "s1").await;
    let parked = stage.store.saga("s2").await.unwrap().unwrap();
    assert_eq!((parked.status.state, parked.epoch), (State::Running, 0));
    runner.drain().await;
    let runner = run(&stage, newer);
    stage_ended(&stage, "s2").await;
    runner.drain().await;
}

#[tokio::test]
async fn a_runner_that_drains_leaves_its_sagas_due() {
    let (stage, far) = scene();
    let gate = Arc::new(tokio::sync::Notify::new());
    far.now("ship", |_| Reply::Wait);
    far.gate(&gate);
    let runner = begin(&stage, definition(&far)).await;
    eventually(PATIENCE, async || far.attempts("ship") == 1).await;
    let draining = tokio::spawn(runner.drain());
    gate.notify_one();
    draining.await.unwrap();
    // The running call has completed, and no further step has started.
    let saga = read(&stage).await;
    assert_eq!(
        saga.step("ship", Direction::Forward).unwrap().state,
        StepState::Done
    );
    assert_eq!(saga.step("capture", Direction::Forward), None);
    let runner = run(&stage, definition(&far));
    stage_ended(&stage, "s1").await;
    runner.drain().await;
}

/// The checkout of the tests. Providers are called again for an hour.
fn definition(far: &Far) -> Definition<Tx> {
    patient(far, Duration::from_hours(1), Duration::from_hours(24))
}

/// The same, with a short window and a short deadline.
fn impatient(far: &Far) -> Definition<Tx> {
    patient(far, Duration::from_secs(5), Duration::from_mins(1))
}

/// Remote steps after a local one, which are called again within `window`, until `deadline`.
fn patient(far: &Far, window: Duration, deadline: Duration) -> Definition<Tx> {
    let retry_policy = RetryPolicy {
        call: Duration::from_secs(5),
        pause: Duration::from_secs(1),
        pause_max: Duration::from_secs(1),
        window,
        settle_time: Duration::from_secs(5),
    };
    Definition::new("checkout", 1)
        .deadline(deadline)
        .step(Step::local("reserve", Writes("reserved")).compensate_local(Writes("released")))
        .step(
            Step::remote("authorize", far.desk("authorize"))
                .compensate_remote(far.desk("undo authorize"))
                .retry_policy(retry_policy),
        )
        .step(
            Step::remote("ship", far.desk("ship"))
                .compensate_remote(far.desk("undo ship"))
                .retry_policy(retry_policy),
        )
        .step(
            Step::remote("capture", far.desk("capture"))
                .pivot()
                .settled_by("captured")
                .retry_policy(retry_policy),
        )
        .on_end(Tell)
}

fn scene() -> (Stage, Far) {
    (Stage::new(), Far::default())
}

async fn start(stage: &Stage, id: &str) {
    start_as(stage, id, &definition(&Far::default())).await;
}

async fn decide(stage: &Stage, id: &str, decision: &Decision) {
    let saga = stage.store.seize_saga(id, LEASE).await.unwrap().unwrap();
    let owned = Owned::of(&saga);
    let (rows, status) = decision
        .evaluate(&saga, "asked them", stage.clock.now())
        .unwrap();
    let mut tx = stage.store.lock_saga(&owned, LEASE).await.unwrap().tx;
    for row in rows {
        tx.write_step(&owned, &row).await.unwrap();
    }
    tx.write_status(&owned, &status).await.unwrap();
    tx.commit().await.unwrap();
    let given = stage.store.give_back_saga(&owned, Duration::ZERO, "", 0);
    given.await.unwrap();
}

/// Waits for a call. The clock does not advance, so the deadline does not pass before it.
async fn called(far: &Far, step: &str) {
    eventually(PATIENCE, async || far.attempts(step) > 0).await;
}

/// The names of the steps that have started, in order.
fn rows(saga: &SagaRecord) -> Vec<&str> {
    saga.steps.iter().map(|step| step.name.as_str()).collect()
}

/// Fails while the count is not zero, and counts its attempts.
struct Halting(Arc<AtomicU32>);

impl OnEnd<Tx> for Halting {
    fn write<'a>(
        &'a self,
        _: &'a mut Tx,
        _: &'a SagaRecord,
        _: State,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            if self.0.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            Err("on purpose".into())
        })
    }
}

struct Tell;

impl OnEnd<Tx> for Tell {
    fn write<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
        state: State,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let kind = format!("saga.{}", state.as_str());
            tx.emit(NewEvent::json(kind, &saga.id))?;
            Ok(())
        })
    }
}
