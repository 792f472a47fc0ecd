//! Deadlines of single-shot requests: a request whose statement waits behind a lock is rolled back in
//! time, and costs the others nothing.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use hapax::{
    idempotency::PlannedRequest,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Statement, Value};
use hapax_testkit::{
    assert_matches,
    events::{claim, response},
    wait::eventually,
};
use tokio::time::{Instant, timeout};

use crate::fixture::{Fixture, INSERT_EACH, PATIENCE, plan, plan_of};

const LOCK: &str = "BEGIN; LOCK TABLE note IN ACCESS EXCLUSIVE MODE";
/// The time of a request in these tests.
const TIME: Duration = Duration::from_millis(500);
/// Much longer than that, and much shorter than the time limit of a statement.
const LATE: Duration = Duration::from_secs(10);

fn due_in(time: Duration, mut plan: PlannedRequest<Statement>) -> PlannedRequest<Statement> {
    plan.deadline = Some((Instant::now() + time).into_std());
    plan
}

/// The result of a request that is due in `TIME`.
async fn run(
    fixture: &Fixture,
    plan: PlannedRequest<Statement>,
) -> Result<ClaimOutcome<Duration>, StoreError> {
    let outcome = timeout(LATE, fixture.store.execute_plan(due_in(TIME, plan))).await;
    outcome.expect("the deadline was ignored")
}

/// A statement that is not prepared yet waits for the lock while it is prepared.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_waits_for_a_lock_ends_at_its_deadline_and_leaves_nothing() {
    for is_prepared in [false, true] {
        let fixture = Fixture::new().await;
        if is_prepared {
            fixture.store.execute_plan(plan("before")).await.unwrap();
        }
        let before = fixture.notes().await;
        fixture.run(LOCK).await;
        let outcome = run(&fixture, plan("k")).await;
        assert_matches!(outcome, Err(StoreError::TimedOut), "{is_prepared}");
        fixture.run("ROLLBACK").await;
        fixture.idle().await;
        assert_eq!(fixture.notes().await, before);
        let retry = fixture.store.execute_plan(plan("k")).await;
        assert_matches!(retry, Ok(ClaimOutcome::Open(_)), "{is_prepared}");
    }
}

/// The key is claimed first, because an earlier claim has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_claims_first_ends_at_its_deadline_too() {
    let fixture = Fixture::new().await;
    fixture.store.execute_plan(plan("old")).await.unwrap();
    fixture.store.execute_plan(plan("old")).await.unwrap();
    fixture.run(LOCK).await;
    let outcome = run(&fixture, plan("k")).await;
    assert_matches!(outcome, Err(StoreError::TimedOut));
    fixture.run("ROLLBACK").await;
    fixture.idle().await;
    assert_eq!(fixture.notes().await, ["old"]);
}

/// The key is in use, and the request runs with a regular claim when it is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_whose_key_was_in_use_ends_at_its_deadline_too() {
    let fixture = Fixture::with(|settings| settings.wait = PATIENCE).await;
    let other = fixture.beside().await;
    let tx = other.claim(claim("k")).await;
    let outcome = run(&fixture, plan("k")).await;
    assert_matches!(outcome, Err(StoreError::TimedOut));
    tx.complete(&response("theirs"), Effect::Keep)
        .await
        .unwrap();
    fixture.idle().await;
    assert!(fixture.notes().await.is_empty());
}

/// Its group is cancelled with it, and the others run one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_time_runs_out_costs_its_group_no_request() {
    let fixture = Fixture::new().await;
    fixture.run("CREATE TABLE hold (it int)").await;
    let blocker = fixture.database.client().await;
    let lock = "BEGIN; LOCK TABLE hold";
    blocker.batch_execute(lock).await.unwrap();
    // The only group that may be in progress waits, so that the others queue as the next one.
    let hold = Statement::new("INSERT INTO hold VALUES (1)", []);
    let first = fire(&fixture, due_in(TIME, plan_of("first", [hold])));
    let slow = Statement::new("SELECT pg_sleep(60)", []);
    let slow = fire(&fixture, due_in(TIME * 4, plan_of("slow", [slow])));
    let fired = (0..10).map(|it| fire(&fixture, plan(&format!("k{it}"))));
    for neighbour in join_all(fired).await {
        assert_matches!(neighbour.unwrap(), Ok(ClaimOutcome::Open(_)));
    }
    for late in [first, slow] {
        let outcome = timeout(LATE, late).await.expect("the deadline was ignored");
        assert_matches!(outcome.unwrap(), Err(StoreError::TimedOut));
    }
    blocker.batch_execute("ROLLBACK").await.unwrap();
    fixture.idle().await;
    assert_eq!(fixture.notes().await.len(), 10);
}

/// The deadline passes while the transaction is opened, runs or commits.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_committed_or_has_timed_out_wherever_its_deadline_falls() {
    let fixture = Fixture::new().await;
    fixture.store.execute_plan(plan("before")).await.unwrap();
    let mut committed = vec!["before".to_owned()];
    for number in 0..250 {
        let key = format!("k{number:03}");
        // With it a plan takes about the time that it has at least.
        let slow = Statement::new("SELECT pg_sleep(0.02)", []);
        let note = Statement::each(INSERT_EACH, [Value::from(key.as_str())]);
        let due = due_in(
            Duration::from_micros(number * 120),
            plan_of(&key, [slow, note]),
        );
        match fixture.store.execute_plan(due).await {
            Ok(ClaimOutcome::Open(_)) => committed.push(key),
            Err(StoreError::TimedOut) => {}
            other => panic!("{key}: {other:?}"),
        }
    }
    fixture.idle().await;
    assert_eq!(fixture.notes().await, committed);
}

/// Each of them would close its connection if it were cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn plans_with_hardly_any_time_do_not_close_a_connection_each() {
    const ROUNDS: usize = 40;
    let fixture = Fixture::with(|settings| settings.connections = 2).await;
    let mut backends = HashSet::new();
    for number in 0..ROUNDS {
        let slow = Statement::new("SELECT pg_sleep(0.006)", []);
        let plan = plan_of(&number.to_string(), [slow]);
        let outcome = fixture
            .store
            .execute_plan(due_in(Duration::from_millis(4), plan))
            .await;
        assert_matches!(
            outcome,
            Ok(ClaimOutcome::Open(_)) | Err(StoreError::TimedOut)
        );
        let pids = "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let rows = fixture.plain.query(pids, &[]).await.unwrap();
        backends.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    // Some may be slower than that on a busy machine.
    assert!(backends.len() < ROUNDS / 2, "{}", backends.len());
}

/// Four members of a group that has failed run at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_little_time_does_not_wait_for_those_with_more() {
    let fixture = Fixture::new().await;
    fixture.run("CREATE TABLE hold (it int)").await;
    let blocker = fixture.database.client().await;
    let lock = "BEGIN; LOCK TABLE hold";
    blocker.batch_execute(lock).await.unwrap();
    // The only group that may be in progress waits, so that the others queue as the next one.
    let hold = Statement::new("INSERT INTO hold VALUES (1)", []);
    let first = fire(&fixture, due_in(TIME, plan_of("first", [hold])));
    let slow = |key: &str, time| {
        let slow = Statement::new("SELECT pg_sleep(60)", []);
        fire(&fixture, due_in(time, plan_of(key, [slow])))
    };
    let slower: Vec<_> = (0..8).map(|it| slow(&format!("s{it}"), LATE)).collect();
    let last = slow("last", TIME * 2);
    let outcome = timeout(LATE / 2, last)
        .await
        .expect("it waited for the others");
    assert_matches!(outcome.unwrap(), Err(StoreError::TimedOut));
    first.abort();
    for slower in slower {
        slower.abort();
    }
}

/// A slow statement takes no lock. The connections that were cancelled are replaced.
#[tokio::test(flavor = "multi_thread")]
async fn slow_statements_are_cancelled_and_leave_connections_for_the_others() {
    let fixture = Fixture::with(|settings| settings.connections = 2).await;
    for number in 0..4 {
        let slow = Statement::new("SELECT pg_sleep(60)", []);
        let outcome = run(&fixture, plan_of(&format!("slow{number}"), [slow])).await;
        assert_matches!(outcome, Err(StoreError::TimedOut), "{number}");
    }
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";
    eventually(PATIENCE, async || fixture.count(running).await == 0).await;
    for number in 0..10 {
        let outcome = fixture.store.execute_plan(plan(&number.to_string())).await;
        assert_matches!(outcome, Ok(ClaimOutcome::Open(_)), "{number}");
    }
}

fn fire(
    fixture: &Fixture,
    plan: PlannedRequest<Statement>,
) -> tokio::task::JoinHandle<Result<ClaimOutcome<Duration>, StoreError>> {
    let store = fixture.store.clone();
    tokio::spawn(async move { store.execute_plan(plan).await })
}
