//! Tests of `hapax sagas`: what it shows of a saga, and the results of operators' decisions.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    event::{Headers, NewEvent},
    saga::{
        Call, Definition, Direction, LocalStep, OnEnd, Outcome, Refusal, RemoteStep, Runner,
        RunnerHandle, SagaRecord, Settings, State, Step, StepState,
    },
    sink::BoxError,
    store::{Keys, SagaRecords, SagaRows, Transaction},
};
use hapax_postgres::{Postgres, Time, Tx};
use hapax_testkit::{
    clock::{ManualClock, seeded_random, system_clock},
    postgres::Database,
    wait::eventually,
};
use serde_json::{Value, json};

use crate::hapax::{PATIENCE, Ran, migrated, run};

const LEASE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_mins(10);

#[tokio::test]
async fn a_step_that_a_person_takes_for_done_is_what_the_saga_goes_on_with() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    let made = r#"{"charge": "by hand"}"#;
    let done = ["done", "--step", "charge", "--made", made];
    stage.decide("s1", &done).ended(0);
    let saga = stage.ended("s1", Far::Refusing).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.made("charge").unwrap(), made);
    assert_eq!(stage.events().await, ["reserved", "shipped", "completed"]);
    let line = stage.audited();
    assert_eq!(
        (&line["action"], &line["outcome"]),
        (&json!("decide"), &json!("done"))
    );
    assert_eq!(line["object"], "saga s1");
    assert!(line["detail"].to_string().contains("asked them"), "{line}");
}

#[tokio::test]
async fn a_step_that_a_person_takes_for_refused_has_the_saga_undone() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    stage
        .decide("s1", &["refused", "--step", "charge"])
        .ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Failed);
    assert_eq!(stage.events().await, ["reserved", "released", "failed"]);
}

#[tokio::test]
async fn what_stopped_a_saga_is_tried_again_under_its_key() {
    let stage = Stage::new().await;
    let key = stage.asking("s1", Far::Silent).await;
    stage.decide("s1", &["retry", "--within", "1h"]).ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.made("charge").unwrap(), &key);
}

#[tokio::test]
async fn what_may_have_happened_is_not_undone_before_somebody_says_so() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    let before = stage.saga("s1").await;
    let refused = stage.decide("s1", &["undo"]).ended(4);
    let why = "the outcome of step charge is unknown: decide first whether it happened";
    assert!(refused.stderr.contains(why), "{refused:?}");
    // The refused command has not changed the saga.
    assert_eq!(stage.saga("s1").await, before);
    let line = stage.audited();
    assert_eq!(line["outcome"], "refused");
}

#[tokio::test]
async fn what_is_stuck_behind_the_pivot_is_undone_when_a_person_says_so() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Failing).await;
    stage.decide("s1", &["undo"]).ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Failed);
    assert_eq!(stage.events().await, ["reserved", "released", "failed"]);
}

#[tokio::test]
async fn a_saga_that_is_closed_stays_as_it_is() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    // The script has read the saga before another worker took it.
    let shown = stage.call(&["show", "s1"]).ended(0).json();
    let before = (shown["epoch"].as_i64().unwrap() - 1).to_string();
    let refused = stage.decide("s1", &["close", "--epoch", &before]).ended(4);
    assert!(refused.stderr.contains("look at it again"), "{refused:?}");
    stage.decide("s1", &["close"]).ended(0);
    let saga = stage.saga("s1").await;
    assert_eq!(saga.status.state, State::Failed);
    assert_eq!(saga.status.reason.unwrap().code, "closed");
    assert!(saga.ended_at.is_some() && saga.wake_at.is_none());
    assert_eq!(stage.events().await, ["reserved"]);
    let refused = stage.decide("s1", &["close"]).ended(4);
    let why = "saga is failed, and does not need attention";
    assert!(refused.stderr.contains(why), "{refused:?}");
}

#[tokio::test]
async fn what_is_asked_about_a_step_that_is_being_undone_is_whether_it_is_undone() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    let asked = |verb: &str| {
        let words = ["decide", "s1", verb, "--step", "charge", "--reason", "why"];
        stage.call(&words).ended(4).stderr
    };
    assert!(asked("done").contains("as if step charge had happened"));
    assert!(asked("refused").contains("as if step charge had not happened"));
    // The step happened after all, and the outcome of its compensation is unknown.
    let client = stage.database.client().await;
    let compensating =
        "UPDATE hapax.saga_step SET state = 'done', ended_at = now() WHERE name = 'charge';
        INSERT INTO hapax.saga_step
            (saga, name, direction, state, provider_key, request, made, attempts, next_at, began_at)
        VALUES ('s1', 'charge', 'compensate', 'open', 'key', '', '', 1, now(), now());
        UPDATE hapax.saga SET compensating = true";
    client.batch_execute(compensating).await.unwrap();
    assert!(asked("done").contains("as if step charge were undone"));
    assert!(asked("refused").contains("Step charge of saga s1 cannot be undone"));
    stage.decide("s1", &["done", "--step", "charge"]).ended(0);
    let saga = stage.saga("s1").await;
    let ways: Vec<_> = saga
        .steps
        .iter()
        .map(|it| (it.direction, it.state))
        .collect();
    assert_eq!(ways.last(), Some(&(Direction::Compensate, StepState::Done)));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_name() {
    let stage = Stage::new().await;
    stage.asking("s1", Far::Silent).await;
    stage.start(&definition(Far::Doing), "s2").await;
    let check = |id: &str, words: &[&str], code: i32, why: &str| {
        let refused = stage.decide(id, words).ended(code);
        assert!(refused.stderr.contains(why), "{refused:?}");
    };
    check("s1", &["done", "--step", "reserve"], 4, "step reserve");
    check("s1", &["refused", "--step", "nothing"], 4, "step nothing");
    check(
        "s1",
        &["done", "--step", "charge", "--made", "{"],
        2,
        "no JSON",
    );
    check("s2", &["close"], 4, "saga is running");
    check("s3", &["close"], 3, "there is no saga s3");
    let asked = stage
        .call(&["decide", "s1", "close", "--reason", "why"])
        .ended(4);
    assert!(asked.stderr.contains("give --yes"), "{asked:?}");
    stage.call(&["decide", "s1", "close", "--yes"]).ended(2);
    stage
        .call(&["decide", "s1", "close", "--yes", "--reason", " "])
        .ended(2);
    stage.call(&["list", "--state", "nonsense"]).ended(2);
    stage.call(&["show", "s3"]).ended(3);
    assert_eq!(stage.saga("s1").await.status.state, State::NeedsAttention);
}

#[tokio::test]
async fn a_saga_says_what_it_did_and_why_it_does_not_move() {
    let stage = Stage::new().await;
    let key = stage.asking("s1", Far::Silent).await;
    stage.start(&definition(Far::Doing), "s2").await;
    stage.start(&definition(Far::Doing), "s3").await;
    let shown = stage.call(&["show", "s1"]).ended(0).json();
    assert_eq!(shown["state"], "needs_attention");
    assert_eq!(shown["input"], json!({"order": 7}));
    let charge = &shown["steps"][1];
    assert_eq!(
        (&charge["name"], &charge["state"]),
        (&json!("charge"), &json!("open"))
    );
    assert_eq!(charge["provider_key"], key.as_str());
    // A value that is not JSON is not shown.
    assert_eq!(charge["request"], "8 bytes");
    assert!(
        charge["error"]["detail"]
            .as_str()
            .unwrap()
            .contains("silent")
    );
    let why = |id: &str| stage.call(&["show", id]).ended(0).json()["why"].to_string();
    assert!(
        why("s1").contains("needs attention: deadline"),
        "{}",
        why("s1")
    );
    assert!(
        why("s2").contains("no worker that knows checkout version 1"),
        "{}",
        why("s2")
    );
    stage
        .set("s2", "lease_until = now() + interval '1 hour'")
        .await;
    assert!(
        why("s2").contains("held by a worker until"),
        "{}",
        why("s2")
    );
    let later = "wake_at = now() + interval '1 hour', waiting_for = 'the weather'";
    stage.set("s3", later).await;
    assert!(why("s3").contains("for the weather"), "{}", why("s3"));

    let listed = stage
        .call(&["list", "--state", "needs_attention"])
        .ended(0)
        .json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let page = stage.call(&["list", "--limit", "2"]).ended(0).json();
    assert_eq!(page["next"], "s2");
    let rest = stage.call(&["list", "--after", "s2"]).ended(0).json();
    assert_eq!(rest["items"][0]["id"], "s3");
    let none = stage.call(&["list", "--name", "other"]).ended(0).json();
    assert_eq!(none["items"], json!([]));
    for words in [&["list"][..], &["show", "s1"]] {
        let table = stage.call_for_people(words).ended(0).stdout;
        assert!(
            table.contains("checkout") && table.contains("needs_attention"),
            "{table}"
        );
    }
}

#[tokio::test]
async fn the_doctor_tells_of_sagas_that_stand_still() {
    let stage = Stage::new().await;
    let examined = || {
        let url = stage.database.url();
        run(&["doctor", "--json", "--database-only", "--database", &url])
    };
    let says = |severity: &str, found: &str| {
        let findings = examined().json();
        let fits = |it: &Value| {
            it["check"] == "sagas"
                && it["severity"] == severity
                && it["found"].as_str().unwrap().contains(found)
        };
        assert!(
            findings.as_array().unwrap().iter().any(fits),
            "{findings:#}"
        );
    };
    says("ok", "none needs attention");
    stage.asking("s1", Far::Silent).await;
    says("warning", "1 of the sagas checkout need attention");
    stage.decide("s1", &["close"]).ended(0);
    // A saga that is due is not reported in the first minute.
    stage.start(&definition(Far::Doing), "s2").await;
    says("ok", "none needs attention");
    stage
        .set("s2", "wake_at = now() - interval '2 minutes'")
        .await;
    says("warning", "1 of the sagas checkout version 1 are due");
}

/// A database with its tables, and a store on it.
struct Stage {
    database: Database,
    store: Postgres,
}

impl Stage {
    async fn new() -> Self {
        let database = migrated().await;
        let store = open(&database, None).await;
        Self { database, store }
    }

    /// Runs a saga until it needs attention, and returns the provider key of the step that stopped
    /// it.
    ///
    /// After the attempt of that step, the clock of the worker is set to the deadline. Later
    /// workers use the system time.
    async fn asking(&self, id: &str, far: Far) -> String {
        let manual = ManualClock::new();
        manual.set(system_clock().now());
        let store = open(&self.database, Some(manual.clock())).await;
        let runner = work(&store, manual.clock(), far);
        self.start_on(&store, &definition(far), id).await;
        let stopped = if matches!(far, Far::Silent) {
            "charge"
        } else {
            "ship"
        };
        let tried = async || {
            let saga = self.saga(id).await;
            let step = saga.steps.iter().find(|step| step.name == stopped);
            step.is_some_and(|step| step.error.is_some())
        };
        eventually(PATIENCE, tried).await;
        manual.advance(DEADLINE);
        let asks = async || {
            let saga = self.saga(id).await;
            saga.status.state == State::NeedsAttention && saga.wake_at.is_none()
        };
        eventually(PATIENCE, asks).await;
        runner.drain().await;
        store.close();
        let saga = self.saga(id).await;
        let step = saga.steps.iter().find(|step| step.name == stopped);
        step.and_then(|step| step.provider_key.clone())
            .unwrap_or_default()
    }

    /// Runs a saga to its end.
    async fn ended(&self, id: &str, far: Far) -> SagaRecord {
        let runner = work(&self.store, system_clock(), far);
        eventually(PATIENCE, async || self.saga(id).await.status.state.is_end()).await;
        runner.drain().await;
        self.saga(id).await
    }

    async fn start(&self, definition: &Definition<Tx>, id: &str) {
        self.start_on(&self.store, definition, id).await;
    }

    async fn start_on(&self, store: &Postgres, definition: &Definition<Tx>, id: &str) {
        let mut tx = store.begin(None, Headers::new()).await.unwrap();
        let input = Bytes::from_static(br#"{"order": 7}"#);
        assert!(
            tx.start_saga(&definition.begin(id, None, input))
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
    }

    async fn saga(&self, id: &str) -> SagaRecord {
        self.store.saga(id).await.unwrap().unwrap()
    }

    /// Changes the row of a saga.
    async fn set(&self, id: &str, what: &str) {
        let set = format!("UPDATE hapax.saga SET {what} WHERE id = '{id}'");
        self.database
            .client()
            .await
            .batch_execute(&set)
            .await
            .unwrap();
    }

    /// The types of all events, in order.
    async fn events(&self) -> Vec<String> {
        let client = self.database.client().await;
        let read = "SELECT type FROM hapax.outbox_event ORDER BY id";
        let rows = client.query(read, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn call(&self, words: &[&str]) -> Ran {
        let url = self.database.url();
        run(&[&["sagas"], words, &["--json", "--database", &url]].concat())
    }

    fn call_for_people(&self, words: &[&str]) -> Ran {
        let url = self.database.url();
        run(&[&["sagas"], words, &["--database", &url]].concat())
    }

    fn decide(&self, id: &str, words: &[&str]) -> Ran {
        let why = ["--reason", "asked them", "--yes"];
        self.call(&[&["decide", id], words, &why].concat())
    }

    /// The newest entry of the audit log.
    fn audited(&self) -> Value {
        let url = self.database.url();
        let log = run(&["destinations", "log", "--json", "--database", &url]);
        log.ended(0).json()["items"][0].clone()
    }
}

async fn open(database: &Database, time: Option<Clock>) -> Postgres {
    let clock = time.clone().unwrap_or_else(system_clock);
    let mut settings = hapax_postgres::Settings::new(database.url(), clock, seeded_random(1));
    settings.time = time.map_or(Time::Database, Time::Given);
    Postgres::open(settings).await.unwrap()
}

fn work(store: &Postgres, clock: Clock, far: Far) -> RunnerHandle {
    let mut settings = Settings::new(clock, seeded_random(2));
    settings.lease = LEASE;
    Runner::spawn(store, vec![definition(far)], settings, &store.notifier())
}

/// The behaviour of the called system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    /// It executes the call, and returns its key.
    Doing,
    /// It rejects the call.
    Refusing,
    /// The outcome of the call is unknown.
    Silent,
    /// It executes the call, and the step after it fails.
    Failing,
}

/// A saga that reserves, charges (without a compensation) and ships.
fn definition(far: Far) -> Definition<Tx> {
    Definition::new("checkout", 1)
        .deadline(DEADLINE)
        .step(Step::local("reserve", Tells("reserved")).compensate_local(Tells("released")))
        .step(Step::remote("charge", far).pivot())
        .step(Step::local("ship", Ships(far)))
        .on_end(Tell)
}

impl RemoteStep for Far {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::from_static(b"charge 7"))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async move {
            match self {
                Self::Doing | Self::Failing => Outcome::Done(call.key.clone().into()),
                Self::Refusing => Outcome::Refused(Refusal::new("no", "not today")),
                Self::Silent => Outcome::Unknown("it is silent".into()),
            }
        })
    }
}

/// A local step that emits an event.
struct Tells(&'static str);

impl LocalStep<Tx> for Tells {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            tx.emit(NewEvent::json(self.0, &saga.id))?;
            Ok(Ok(Bytes::new()))
        })
    }
}

struct Ships(Far);

impl LocalStep<Tx> for Ships {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            if self.0 == Far::Failing {
                return Err("the warehouse is closed".into());
            }
            Tells("shipped").run(tx, saga).await
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
            tx.emit(NewEvent::json(state.as_str(), &saga.id))?;
            Ok(())
        })
    }
}
