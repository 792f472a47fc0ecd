//! Tests of `hapax sagas`: what it shows of a saga, and the results of operators' decisions.

use std::{marker::PhantomData, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    event::{Headers, NewEvent},
    notify::Notifier,
    saga::{
        Call, Definition, Direction, LocalStep, OnEnd, Outcome, Refusal, RemoteStep, Runner,
        RunnerHandle, SagaRecord, Settings, State, Step, StepState,
    },
    sink::BoxError,
    store::{SagaRows, Sagas, Transaction},
};
use hapax_postgres::{Postgres, Time};
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{ManualClock, seeded_random, system_clock},
    wait::eventually,
};
use serde_json::{Value, json};

use crate::{
    hapax::{PATIENCE, ProgramOutput, run},
    store::{Home, Store},
};

/// Generates two tests of each function, one for each store.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<hapax_sqlite::Sqlite>().await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<hapax_postgres::Postgres>().await;
            })*
        }
    };
}

on_both_stores! {
    a_step_that_a_person_takes_for_done_is_what_the_saga_goes_on_with,
    a_step_that_a_person_takes_for_refused_has_the_saga_undone,
    what_stopped_a_saga_is_tried_again_under_its_key,
    what_may_have_happened_is_not_undone_before_somebody_says_so,
    what_is_stuck_behind_the_pivot_is_undone_when_a_person_says_so,
    a_saga_that_is_closed_stays_as_it_is,
    what_is_asked_about_a_step_that_is_being_undone_is_whether_it_is_undone,
    what_makes_no_sense_is_refused_by_its_name,
    a_saga_says_what_it_did_and_why_it_does_not_move,
    the_doctor_tells_of_sagas_that_stand_still,
}

const LEASE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_mins(10);
/// The current time in milliseconds, as SQLite computes it.
const SQLITE_NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

async fn a_step_that_a_person_takes_for_done_is_what_the_saga_goes_on_with<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    stage.asking("s1", Far::Silent).await;
    let made = r#"{"charge": "by hand"}"#;
    let done = ["done", "--step", "charge", "--made", made];
    stage.decide("s1", &done).ended(0);
    let saga = stage.ended("s1", Far::Refusing).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.made("charge").unwrap(), made);
    assert_eq!(stage.events(), ["reserved", "shipped", "completed"]);
    let line = stage.audited();
    assert_eq!(
        (&line["action"], &line["outcome"]),
        (&json!("decide"), &json!("done"))
    );
    assert_eq!(line["object"], "saga s1");
    assert!(line["detail"].to_string().contains("asked them"), "{line}");
}

async fn a_step_that_a_person_takes_for_refused_has_the_saga_undone<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    stage.asking("s1", Far::Silent).await;
    stage
        .decide("s1", &["refused", "--step", "charge"])
        .ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Failed);
    assert_eq!(stage.events(), ["reserved", "released", "failed"]);
}

async fn what_stopped_a_saga_is_tried_again_under_its_key<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    let key = stage.asking("s1", Far::Silent).await;
    stage.decide("s1", &["retry", "--within", "1h"]).ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Completed);
    assert_eq!(saga.made("charge").unwrap(), &key);
}

async fn what_may_have_happened_is_not_undone_before_somebody_says_so<S: TestStore>() {
    let stage = Stage::<S>::new().await;
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

async fn what_is_stuck_behind_the_pivot_is_undone_when_a_person_says_so<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    stage.asking("s1", Far::Failing).await;
    stage.decide("s1", &["undo"]).ended(0);
    let saga = stage.ended("s1", Far::Doing).await;
    assert_eq!(saga.status.state, State::Failed);
    assert_eq!(stage.events(), ["reserved", "released", "failed"]);
}

async fn a_saga_that_is_closed_stays_as_it_is<S: TestStore>() {
    let stage = Stage::<S>::new().await;
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
    assert_eq!(stage.events(), ["reserved"]);
    let refused = stage.decide("s1", &["close"]).ended(4);
    let why = "saga is failed, and does not need attention";
    assert!(refused.stderr.contains(why), "{refused:?}");
}

async fn what_is_asked_about_a_step_that_is_being_undone_is_whether_it_is_undone<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    stage.asking("s1", Far::Silent).await;
    let asked = |verb: &str| {
        let words = ["decide", "s1", verb, "--step", "charge", "--reason", "why"];
        stage.call(&words).ended(4).stderr
    };
    assert!(asked("done").contains("as if step charge had happened"));
    assert!(asked("refused").contains("as if step charge had not happened"));
    // The step happened after all, and the outcome of its compensation is unknown.
    let compensating = |now: &str| {
        format!(
            "UPDATE hapax.saga_step SET state = 'done', ended_at = {now} WHERE name = 'charge';
             INSERT INTO hapax.saga_step
                 (saga, name, direction, state, provider_key, request, made, attempts, next_at,
                  began_at)
             VALUES ('s1', 'charge', 'compensate', 'open', 'key', '', '', 1, {now}, {now});
             UPDATE hapax.saga SET compensating = true"
        )
    };
    stage.change(compensating).await;
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

async fn what_makes_no_sense_is_refused_by_its_name<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    stage.asking("s1", Far::Silent).await;
    stage.start(Far::Doing, "s2").await;
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
        "expected JSON",
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

async fn a_saga_says_what_it_did_and_why_it_does_not_move<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    let key = stage.asking("s1", Far::Silent).await;
    stage.start(Far::Doing, "s2").await;
    stage.start(Far::Doing, "s3").await;
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
        .set("s2", |_, later| format!("lease_until = {later}"))
        .await;
    assert!(
        why("s2").contains("held by a worker until"),
        "{}",
        why("s2")
    );
    let sleeping = |_: &str, later: &str| format!("wake_at = {later}, waiting_for = 'the weather'");
    stage.set("s3", sleeping).await;
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

async fn the_doctor_tells_of_sagas_that_stand_still<S: TestStore>() {
    let stage = Stage::<S>::new().await;
    let examined = || {
        let url = stage.home.url();
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
    says("ok", "no saga needs attention");
    stage.asking("s1", Far::Silent).await;
    says("warning", "1 of the sagas checkout need attention");
    stage.decide("s1", &["close"]).ended(0);
    // A saga that is due is not reported in the first minute.
    stage.start(Far::Doing, "s2").await;
    says("ok", "no saga needs attention");
    stage.set("s2", |past, _| format!("wake_at = {past}")).await;
    says("warning", "1 of the sagas checkout version 1 have been due");
}

/// A store that the tests open for a while.
trait TestStore: Sagas + Sized {
    /// The store, for the fixture.
    const STORE: Store;

    /// Opens the store. Its clock is the given one, or else its usual one.
    async fn open(home: &Home, time: Option<Clock>) -> Self;

    fn wakes(&self) -> Notifier;

    async fn close(self);
}

impl TestStore for Postgres {
    const STORE: Store = Store::Postgres;

    async fn open(home: &Home, time: Option<Clock>) -> Self {
        let clock = time.clone().unwrap_or_else(system_clock);
        let mut settings = hapax_postgres::Settings::new(home.url(), clock, seeded_random(1));
        settings.time = time.map_or(Time::Database, Time::Given);
        Self::open(settings).await.unwrap()
    }

    fn wakes(&self) -> Notifier {
        self.notifier()
    }

    async fn close(self) {
        Self::close(&self);
    }
}

impl TestStore for Sqlite {
    const STORE: Store = Store::Sqlite;

    async fn open(home: &Home, time: Option<Clock>) -> Self {
        let clock = time.unwrap_or_else(system_clock);
        let seed = u64::try_from(clock.now().as_millis()).unwrap();
        let settings = hapax_sqlite::Settings::new(home.path(), clock, seeded_random(seed));
        Self::open(settings).unwrap()
    }

    fn wakes(&self) -> Notifier {
        self.notifier()
    }

    async fn close(self) {
        Self::close(&self).await.unwrap();
    }
}

/// A database with its tables. A store is open only while the tests use it, because an SQLite file
/// belongs to one store.
struct Stage<S> {
    home: Home,
    store: PhantomData<S>,
}

impl<S: TestStore> Stage<S> {
    async fn new() -> Self {
        let home = Home::migrated(S::STORE).await;
        let store = PhantomData;
        Self { home, store }
    }

    /// Runs a saga until it needs attention, and returns the provider key of the step that stopped
    /// it.
    ///
    /// After the attempt of that step, the clock of the worker is set to the deadline. Later
    /// workers use the system time.
    async fn asking(&self, id: &str, far: Far) -> String {
        let manual = ManualClock::new();
        manual.set(system_clock().now());
        let store = S::open(&self.home, Some(manual.clock())).await;
        let runner = work(&store, manual.clock(), far);
        start(&store, &definition(far), id).await;
        let stopped = if matches!(far, Far::Silent) {
            "charge"
        } else {
            "ship"
        };
        let tried = async || {
            let saga = saga(&store, id).await;
            let step = saga.steps.iter().find(|step| step.name == stopped);
            step.is_some_and(|step| step.error.is_some())
        };
        eventually(PATIENCE, tried).await;
        manual.advance(DEADLINE);
        let asks = async || {
            // The runner may have read the clock just before, and then waits by this clock.
            manual.advance(Duration::from_secs(1));
            let saga = saga(&store, id).await;
            saga.status.state == State::NeedsAttention && saga.wake_at.is_none()
        };
        eventually(PATIENCE, asks).await;
        runner.drain().await;
        let saga = saga(&store, id).await;
        store.close().await;
        let step = saga.steps.iter().find(|step| step.name == stopped);
        step.and_then(|step| step.provider_key.clone())
            .unwrap_or_default()
    }

    /// Runs a saga to its end.
    async fn ended(&self, id: &str, far: Far) -> SagaRecord {
        let store = S::open(&self.home, None).await;
        let runner = work(&store, system_clock(), far);
        let is_ended = async || saga(&store, id).await.status.state.is_end();
        eventually(PATIENCE, is_ended).await;
        runner.drain().await;
        let saga = saga(&store, id).await;
        store.close().await;
        saga
    }

    /// Starts a saga without a runner.
    async fn start(&self, far: Far, id: &str) {
        let store = S::open(&self.home, None).await;
        start(&store, &definition(far), id).await;
        store.close().await;
    }

    async fn saga(&self, id: &str) -> SagaRecord {
        let store = S::open(&self.home, None).await;
        let saga = saga(&store, id).await;
        store.close().await;
        saga
    }

    /// Executes SQL. `sql` is given the current time in the dialect of the store, and names the
    /// tables as PostgreSQL does.
    async fn change(&self, sql: impl Fn(&str) -> String) {
        let sqlite = sql(SQLITE_NOW).replace("hapax.", "hapax_");
        // An empty text is not an empty blob.
        let sqlite = sqlite.replace("'', ''", "x'', x''");
        self.home.change(&sqlite, &sql("now()")).await;
    }

    /// Changes the row of a saga. `what` is given a time in the past and one in the future.
    async fn set(&self, id: &str, what: impl Fn(&str, &str) -> String) {
        let set = |table: &str, past: &str, later: &str| {
            format!("UPDATE {table} SET {} WHERE id = '{id}'", what(past, later))
        };
        let minutes = |count: i64| format!("{SQLITE_NOW} + {}", count * 60_000);
        let sqlite = set("hapax_saga", &minutes(-2), &minutes(60));
        let past = "now() - interval '2 minutes'";
        let postgres = set("hapax.saga", past, "now() + interval '1 hour'");
        self.home.change(&sqlite, &postgres).await;
    }

    /// The types of all events, in order.
    fn events(&self) -> Vec<String> {
        let url = self.home.url();
        let listed = run(&["events", "list", "--json", "--database", &url]);
        let listed = listed.ended(0).json();
        let kinds = listed["items"].as_array().unwrap().iter().rev();
        kinds
            .map(|it| it["type"].as_str().unwrap().to_owned())
            .collect()
    }

    fn call(&self, words: &[&str]) -> ProgramOutput {
        let url = self.home.url();
        run(&[&["sagas"], words, &["--json", "--database", &url]].concat())
    }

    fn call_for_people(&self, words: &[&str]) -> ProgramOutput {
        let url = self.home.url();
        run(&[&["sagas"], words, &["--database", &url]].concat())
    }

    fn decide(&self, id: &str, words: &[&str]) -> ProgramOutput {
        let why = ["--reason", "asked them", "--yes"];
        self.call(&[&["decide", id], words, &why].concat())
    }

    /// The newest entry of the audit log.
    fn audited(&self) -> Value {
        let url = self.home.url();
        let log = run(&["destinations", "log", "--json", "--database", &url]);
        log.ended(0).json()["items"][0].clone()
    }
}

async fn start<S: TestStore>(store: &S, definition: &Definition<S::Tx>, id: &str) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let input = Bytes::from_static(br#"{"order": 7}"#);
    let saga = definition.begin(id, None, input);
    assert!(tx.start_saga(&saga).await.unwrap());
    tx.commit().await.unwrap();
}

async fn saga(store: &impl Sagas, id: &str) -> SagaRecord {
    store.saga(id).await.unwrap().unwrap()
}

fn work<S: TestStore>(store: &S, clock: Clock, far: Far) -> RunnerHandle {
    let mut settings = Settings::new(clock, seeded_random(2));
    settings.lease = LEASE;
    Runner::spawn(store, vec![definition(far)], settings, &store.wakes())
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
fn definition<Tx: SagaRows>(far: Far) -> Definition<Tx> {
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

impl<Tx: Transaction> LocalStep<Tx> for Tells {
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

impl<Tx: Transaction> LocalStep<Tx> for Ships {
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

impl<Tx: Transaction> OnEnd<Tx> for Tell {
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
