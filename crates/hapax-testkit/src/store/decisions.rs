//! Conformance tests of operators' decisions: a decision about a saga takes effect, even a late
//! one.

use std::{marker::PhantomData, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    notify::Notifier,
    saga::{
        Call, Decision, Definition, LocalStep, Outcome, Owned, Refusal, RemoteStep, RetryPolicy,
        Runner, SagaRecord, Settings, State, Step,
    },
    sink::BoxError,
    store::{Effect, KeyMaintenance, Keys, SagaRows, Transaction},
};

use super::{
    SagasUnderTest, Tx,
    fixture::{Fixture, PATIENCE},
    saga_steps::{find, give_back, lock, seize},
};
use crate::{
    clock::seeded_random,
    events::{RETENTION, claim, event, response},
    wait::eventually,
};

/// How far the clock moves at each check, for a saga that is expected to give up.
const PACE: Duration = Duration::from_millis(250);

/// A key does not expire while a saga lives that was started under it. A retry a day later, while
/// the saga needs attention, receives the stored response and does not start a second saga. The
/// decision then ends the saga.
pub async fn a_key_stands_until_the_saga_that_began_under_it_has_ended<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    let saga = checkout::<S>().begin("s1", None, Bytes::new());
    assert!(tx.start_saga(&saga).await.expect("it is started"));
    let kept = tx.complete(&response("{}"), Effect::Keep).await;
    kept.expect("a response is stored");
    let notifier = Notifier::new();
    let settings = Settings::new(fixture.clock.clock(), seeded_random(3));
    let runner = Runner::spawn(fixture.store(), vec![checkout::<S>()], settings, &notifier);
    // The clock does not move before the call, so that the saga does not run out of time earlier.
    let has_called = async || {
        let saga = find(&fixture, "s1").await;
        saga.is_some_and(|it| !it.steps.is_empty())
    };
    eventually(PATIENCE, has_called).await;
    until(&fixture, &notifier, State::NeedsAttention, PACE).await;
    assert_eq!(fixture.replay(claim("k")).await, response("{}"));
    fixture.clock.advance(2 * RETENTION);
    let purged = fixture.store().purge_keys().await;
    assert_eq!(purged.expect("keys are purged"), []);
    assert_eq!(fixture.replay(claim("k")).await, response("{}"));
    let happened = Decision::Done {
        step: "capture".to_owned(),
        made: Bytes::from_static(b"by hand"),
    };
    decide(&fixture, &happened).await;
    until(&fixture, &notifier, State::Completed, Duration::ZERO).await;
    runner.drain().await;
    assert_eq!(fixture.rows().await, ["by hand"]);
    assert_eq!(fixture.events().await.len(), 1);
    let purged = fixture.store().purge_keys().await;
    assert_eq!(purged.expect("keys are purged").len(), 1);
    let found = fixture.store().look_up(&claim("k").scope).await;
    assert!(found.expect("looked up").is_none());
    // The key is free again. The saga can still not be started again with the same id.
    let mut tx = fixture.claim(claim("k")).await;
    assert!(!tx.start_saga(&saga).await.expect("it is known"));
    tx.rollback().await;
}

/// A saga that captures, without receiving a response, and then writes what was captured.
fn checkout<S: SagasUnderTest>() -> Definition<Tx<S>> {
    let retry_policy = RetryPolicy {
        pause_max: Duration::from_secs(2),
        ..RetryPolicy::default()
    };
    Definition::new("checkout", 1)
        .deadline(Duration::from_mins(1))
        .step(
            Step::remote("capture", Silent)
                .pivot()
                .retry_policy(retry_policy),
        )
        .step(Step::local("notify", Notify::<S>(PhantomData)))
}

/// Waits until the saga is in a state. This much time passes between two checks.
async fn until<S: SagasUnderTest>(
    fixture: &Fixture<S>,
    notifier: &Notifier,
    state: State,
    pace: Duration,
) {
    let rests = async || {
        fixture.clock.advance(pace);
        notifier.notify();
        let saga = find(fixture, "s1").await.expect("the saga exists");
        saga.status.state == state && saga.wake_at.is_none()
    };
    eventually(PATIENCE, rests).await;
}

async fn decide<S: SagasUnderTest>(fixture: &Fixture<S>, decision: &Decision) {
    let saga = seize(fixture, "s1").await.expect("the saga exists");
    let owned = Owned::of(&saga);
    let judged = decision.evaluate(&saga, "asked them", fixture.clock.now());
    let (rows, status) = judged.expect("the decision fits the saga");
    let mut tx = lock(fixture, &owned).await.tx;
    for row in &rows {
        let written = tx.write_step(&owned, row).await;
        written.expect("a step is written");
    }
    let written = tx.write_status(&owned, &status).await;
    written.expect("a status is written");
    tx.commit().await.expect("it is committed");
    give_back(fixture, &owned, Duration::ZERO, 0).await;
}

/// A remote system that never responds.
struct Silent;

impl RemoteStep for Silent {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async { Outcome::Unknown("the response was lost".into()) })
    }
}

/// Writes what was captured, and emits an event about it.
struct Notify<S>(PhantomData<S>);

impl<S: SagasUnderTest> LocalStep<Tx<S>> for Notify<S> {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx<S>,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            let made = saga.made("capture").ok_or("it is not captured")?;
            S::write_row(tx, std::str::from_utf8(made)?).await;
            tx.emit(event(&saga.id))?;
            Ok(Ok(Bytes::new()))
        })
    }
}
