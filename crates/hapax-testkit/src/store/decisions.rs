//! Conformance tests of decisions: an operator's decision about a saga takes effect, even a late
//! one.

use std::{marker::PhantomData, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    notify::Notifier,
    saga::{
        Call, Decision, Definition, Foreign, Local, Outcome, Owned, Patience, Refusal, Runner,
        SagaRecord, Settings, State, Step,
    },
    sink::BoxError,
    store::{Effect, Keys, SagaRows, Transaction},
};

use super::{
    StoreUnderTest, Tx,
    bench::{Bench, PATIENCE},
    saga_steps::{find, give_back, seize, turn},
};
use crate::{
    clock::seeded_random,
    events::{RETENTION, answer, claim, event},
    wait::eventually,
};

/// How fast the time passes for a saga that is expected to give up.
const PACE: Duration = Duration::from_millis(250);

/// A key does not expire while a saga lives that was started under it. A retry a day later, while
/// the saga needs attention, receives the stored response and does not start a second saga. The
/// decision then ends the saga.
pub async fn a_key_stands_until_the_saga_that_began_under_it_has_ended<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut tx = bench.claim(claim("k")).await;
    let saga = checkout::<S>().begin("s1", None, Bytes::new());
    assert!(tx.start_saga(&saga).await.expect("it is started"));
    let kept = tx.complete(&answer("{}"), Effect::Keep).await;
    kept.expect("a response is stored");
    let notifier = Notifier::new();
    let settings = Settings::new(bench.clock.clock(), seeded_random(3));
    let runner = Runner::spawn(bench.store(), vec![checkout::<S>()], settings, &notifier);
    // The clock does not move before the call, so that the saga does not run out of time earlier.
    let has_called = async || {
        let saga = find(&bench, "s1").await;
        saga.is_some_and(|it| !it.steps.is_empty())
    };
    eventually(PATIENCE, has_called).await;
    until(&bench, &notifier, State::NeedsAttention, PACE).await;
    assert_eq!(bench.replay(claim("k")).await, answer("{}"));
    bench.clock.advance(2 * RETENTION);
    let purged = bench.store().purge_keys().await;
    assert_eq!(purged.expect("keys are purged"), []);
    assert_eq!(bench.replay(claim("k")).await, answer("{}"));
    let happened = Decision::Done {
        step: "capture".to_owned(),
        made: Bytes::from_static(b"by hand"),
    };
    decide(&bench, &happened).await;
    until(&bench, &notifier, State::Completed, Duration::ZERO).await;
    runner.drain().await;
    assert_eq!(bench.rows().await, ["by hand"]);
    assert_eq!(bench.events().await.len(), 1);
    let purged = bench.store().purge_keys().await;
    assert_eq!(purged.expect("keys are purged").len(), 1);
    let found = bench.store().look_up(&claim("k").scope).await;
    assert!(found.expect("looked up").is_none());
    // The key is free again. The saga can still not be started again with the same id.
    let mut tx = bench.claim(claim("k")).await;
    assert!(!tx.start_saga(&saga).await.expect("it is known"));
    tx.rollback().await;
}

/// A saga that captures, without receiving a response, and then writes what was captured.
fn checkout<S: StoreUnderTest>() -> Definition<Tx<S>> {
    let patience = Patience {
        pause_max: Duration::from_secs(2),
        ..Patience::default()
    };
    Definition::new("checkout", 1)
        .deadline(Duration::from_mins(1))
        .step(Step::foreign("capture", Silent).pivot().patience(patience))
        .step(Step::local("notify", Notify::<S>(PhantomData)))
}

/// Waits until the saga is in a state. This much time passes between two checks.
async fn until<S: StoreUnderTest>(
    bench: &Bench<S>,
    notifier: &Notifier,
    state: State,
    pace: Duration,
) {
    let rests = async || {
        bench.clock.advance(pace);
        notifier.notify();
        let saga = find(bench, "s1").await.expect("the saga exists");
        saga.standing.state == state && saga.wake_at.is_none()
    };
    eventually(PATIENCE, rests).await;
}

async fn decide<S: StoreUnderTest>(bench: &Bench<S>, decision: &Decision) {
    let saga = seize(bench, "s1").await.expect("the saga exists");
    let owned = Owned::of(&saga);
    let judged = decision.judge(&saga, "asked them", bench.clock.now());
    let (rows, standing) = judged.expect("the decision fits the saga");
    let mut tx = turn(bench, &owned).await;
    for row in &rows {
        let written = tx.write_step(&owned, row).await;
        written.expect("a step is written");
    }
    let written = tx.write_standing(&owned, &standing).await;
    written.expect("a status is written");
    tx.commit().await.expect("it is committed");
    give_back(bench, &owned, Duration::ZERO, 0).await;
}

/// A remote system that never responds.
struct Silent;

impl Foreign for Silent {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async { Outcome::Unknown("the response was lost".into()) })
    }
}

/// Writes what was captured, and emits an event about it.
struct Notify<S>(PhantomData<S>);

impl<S: StoreUnderTest> Local<Tx<S>> for Notify<S> {
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
