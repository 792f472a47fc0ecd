//! Group commit: which requests share a commit, and what a request that fails costs the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    failpoint::Failpoints,
    idempotency::{PlannedRequest, Taken},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Settings, Statement, Value};
use hapax_testkit::{
    assert_matches,
    events::{claim, fingerprint, response},
    wait::eventually,
};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, INSERT, PATIENCE, plan, plan_of};

/// Counts commits.
fn counted(settings: &mut Settings) -> Arc<AtomicUsize> {
    let commits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&commits);
    settings.failpoints = Failpoints::calling(move |name| {
        if name == "postgres.commit.after" {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    commits
}

type Outcomes = Vec<Result<ClaimOutcome<Duration>, StoreError>>;

/// Starts requests while the only group that may be in progress waits for a table lock, so that
/// they queue as the next group. Then releases the lock.
async fn together(fixture: &Fixture, plans: Vec<PlannedRequest<Statement>>) -> Outcomes {
    let blocker = fixture.database.client().await;
    blocker
        .batch_execute("BEGIN; LOCK TABLE hold")
        .await
        .unwrap();
    let first = fire(
        fixture,
        plan_of("first", [Statement::new("INSERT INTO hold VALUES (1)", [])]),
    );
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'hold'::regclass";
    eventually(PATIENCE, async || fixture.count(waits).await == 1).await;
    let waiting = plans.len();
    let fired: Vec<_> = plans.into_iter().map(|plan| fire(fixture, plan)).collect();
    eventually(PATIENCE, async || fixture.store.queued() == waiting).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(first.await.unwrap(), Ok(ClaimOutcome::Open(_))));
    join_all(fired)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

fn fire(
    fixture: &Fixture,
    plan: PlannedRequest<Statement>,
) -> JoinHandle<Result<ClaimOutcome<Duration>, StoreError>> {
    let store = fixture.store.clone();
    tokio::spawn(async move { store.execute_plan(plan).await })
}

async fn one_lane(set: impl FnOnce(&mut Settings)) -> Fixture {
    let fixture = Fixture::with(|settings| {
        settings.lanes = 1;
        set(settings);
    })
    .await;
    fixture.run("CREATE TABLE hold (it int)").await;
    fixture
}

#[track_caller]
fn check_committed(outcome: &Outcomes) {
    let committed =
        |ran: &Result<ClaimOutcome<Duration>, StoreError>| matches!(ran, Ok(ClaimOutcome::Open(_)));
    assert!(outcome.iter().all(committed), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_together_share_a_commit() {
    let mut commits = None;
    let fixture = one_lane(|settings| commits = Some(counted(settings))).await;
    let outcome = together(
        &fixture,
        (0..60).map(|it| plan(&format!("k{it:02}"))).collect(),
    )
    .await;
    check_committed(&outcome);
    assert_eq!(commits.unwrap().load(Ordering::SeqCst), 2);
    assert_eq!(fixture.notes().await.len(), 60);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event")
            .await,
        61
    );
    for it in 0..60 {
        let taken = fixture
            .store
            .execute_plan(plan(&format!("k{it:02}")))
            .await
            .unwrap();
        let ClaimOutcome::Taken(Taken::Replay {
            response: replayed, ..
        }) = taken
        else {
            panic!("{taken:?}");
        };
        assert_eq!(replayed, response(&format!("k{it:02}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_one_commit_one_by_one() {
    let mut commits = None;
    let fixture = one_lane(|settings| {
        commits = Some(counted(settings));
        settings.group_max = 1;
    })
    .await;
    let outcome = together(&fixture, (0..5).map(|it| plan(&format!("k{it}"))).collect()).await;
    check_committed(&outcome);
    assert_eq!(commits.unwrap().load(Ordering::SeqCst), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_statement_fails_fails_alone() {
    let fixture = one_lane(|_| {}).await;
    let bad = plan_of("bad", [Statement::new(INSERT, [Value::Null])]);
    let odd = plan_of("odd", [Statement::new(INSERT, [Value::from(7_i64)])]);
    let mut plans = vec![bad, odd];
    plans.extend((0..10).map(|it| plan(&format!("k{it}"))));
    let outcome = together(&fixture, plans).await;
    assert!(
        matches!(outcome[0], Err(StoreError::Statement { .. })),
        "{:?}",
        outcome[0]
    );
    assert!(
        matches!(outcome[1], Err(StoreError::Statement { .. })),
        "{:?}",
        outcome[1]
    );
    check_committed(&outcome[2..].iter().map(again).collect());
    assert_eq!(fixture.notes().await.len(), 10);
    // The failed request has left its key free.
    let outcome = fixture.store.execute_plan(plan("bad")).await;
    assert_matches!(outcome, Ok(ClaimOutcome::Open(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_key_in_a_group_is_replayed_and_its_neighbours_commit() {
    let fixture = one_lane(|_| {}).await;
    fixture.store.execute_plan(plan("old")).await.unwrap();
    let mut mismatch = plan("old");
    mismatch.claim.fingerprint = fingerprint(9);
    let plans = vec![plan("k1"), plan("old"), plan("k2"), plan("k1"), mismatch];
    let outcome = together(&fixture, plans).await;
    let mut outcome: Vec<_> = outcome.into_iter().map(Result::unwrap).collect();
    // Two requests with the same key are never in one group, so either of them may be first.
    if matches!(outcome[0], ClaimOutcome::Taken(_)) {
        outcome.swap(0, 3);
    }
    assert_matches!(outcome[0], ClaimOutcome::Open(_), "{outcome:?}");
    assert_matches!(
        &outcome[1],
        ClaimOutcome::Taken(Taken::Replay { .. }),
        "{outcome:?}"
    );
    assert_matches!(outcome[2], ClaimOutcome::Open(_), "{outcome:?}");
    assert_matches!(
        &outcome[3],
        ClaimOutcome::Taken(Taken::Replay { .. }),
        "{outcome:?}"
    );
    assert_eq!(outcome[4], ClaimOutcome::Taken(Taken::Mismatch));
    assert_eq!(fixture.notes().await, ["k1", "k2", "old"]);
    fixture.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_node_is_using_delays_no_other() {
    let fixture = one_lane(|settings| settings.wait = PATIENCE).await;
    let other = fixture.beside().await;
    let tx = other.claim(claim("busy")).await;
    let mut plans = vec![plan("busy")];
    plans.extend((0..10).map(|it| plan(&format!("k{it}"))));
    let busy_is_told = together_but(&fixture, plans).await;
    assert!(
        !busy_is_told.is_finished(),
        "the busy key was not waited for"
    );
    tx.complete(&response("theirs"), Effect::Keep)
        .await
        .unwrap();
    let told = busy_is_told.await.unwrap().unwrap();
    let ClaimOutcome::Taken(Taken::Replay { response: told, .. }) = told else {
        panic!("{told:?}");
    };
    assert_eq!(told, response("theirs"));
    fixture.idle().await;
}

/// Like `together`, for requests of which the first still waits at the end; returns its task.
async fn together_but(
    fixture: &Fixture,
    plans: Vec<PlannedRequest<Statement>>,
) -> JoinHandle<Result<ClaimOutcome<Duration>, StoreError>> {
    let mut fired = plans.into_iter().map(|plan| fire(fixture, plan));
    let first = fired.next().unwrap();
    for neighbour in join_all(fired).await {
        assert!(matches!(neighbour.unwrap(), Ok(ClaimOutcome::Open(_))));
    }
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_holds_does_not_hold_a_whole_group() {
    let fixture = one_lane(|_| {}).await;
    fixture
        .run("CREATE TABLE hot (it int); INSERT INTO hot VALUES (1)")
        .await;
    let blocker = fixture.database.client().await;
    blocker
        .batch_execute("BEGIN; UPDATE hot SET it = 2")
        .await
        .unwrap();
    let hot = plan_of("hot", [Statement::new("UPDATE hot SET it = it + 1", [])]);
    let mut plans = vec![hot];
    plans.extend((0..10).map(|it| plan(&format!("k{it}"))));
    let outcome = together_but(&fixture, plans).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(outcome.await.unwrap(), Ok(ClaimOutcome::Open(_))));
    assert_eq!(fixture.count("SELECT it::int8 FROM hot").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_groups_that_lock_each_other_out_all_commit() {
    let fixture = one_lane(|_| {}).await;
    let other = fixture.beside().await;
    let rows = "CREATE TABLE stock (id int PRIMARY KEY, left_over int);
                INSERT INTO stock SELECT it, 1000 FROM generate_series(1, 10) AS it";
    fixture.run(rows).await;
    let take = |id: i64| {
        let sql = "UPDATE stock SET left_over = left_over - 1 WHERE id = $1::int8";
        Statement::new(sql, [Value::from(id)])
    };
    // One node updates the rows in ascending order, the other in descending order: their
    // transactions must conflict.
    let ask = |it: i64| {
        let up: Vec<i64> = (1..=10).collect();
        let (node, ids) = match it % 2 {
            0 => (&fixture, up),
            _ => (&other, up.into_iter().rev().collect()),
        };
        fire(node, plan_of(&format!("k{it}"), ids.into_iter().map(take)))
    };
    let fired: Vec<_> = (0..200).map(ask).collect();
    let mut outcome: Outcomes = join_all(fired)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let lost = |ran: &Result<ClaimOutcome<Duration>, StoreError>| {
        matches!(ran, Err(StoreError::Conflict { .. }))
    };
    let losers = outcome.iter().filter(|ran| lost(ran)).count();
    assert!(
        losers < 20,
        "{losers} of 200 had to be retried by the caller"
    );
    // A request that lost more conflicts than the store retries is retried by its caller.
    for (it, ran) in (0..).zip(&mut outcome) {
        if lost(ran) {
            *ran = ask(it).await.unwrap();
        }
    }
    check_committed(&outcome);
    assert_eq!(
        fixture.count("SELECT sum(left_over) FROM stock").await,
        10_000 - 2_000
    );
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event")
            .await,
        200
    );
    fixture.idle().await;
}

fn again(
    outcome: &Result<ClaimOutcome<Duration>, StoreError>,
) -> Result<ClaimOutcome<Duration>, StoreError> {
    match outcome {
        Ok(ran) => Ok(ran.clone()),
        Err(_) => Err(StoreError::TimedOut),
    }
}
