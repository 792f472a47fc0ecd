//! Groups: which requests share a commit, and when they get their results.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use hapax::{
    Clock,
    failpoint::Failpoints,
    store::{ClaimOutcome, KeyMaintenance, Keys, StoreError},
};
use hapax_sqlite::{
    Statement,
    rusqlite::{self, Connection},
};
use hapax_testkit::assert_matches;

use crate::fixture::{Fixture, INSERT, plan};

/// Counts commits.
fn counted() -> (Failpoints, Arc<AtomicUsize>) {
    let commits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&commits);
    let failpoints = Failpoints::calling(move |name| {
        if name == "sqlite.commit.after" {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (failpoints, commits)
}

/// Queues `jobs` while the writer is blocked, so that all of them wait together.
async fn check_commits(group_max: usize, jobs: usize, expected: std::ops::RangeInclusive<usize>) {
    let (failpoints, commits) = counted();
    let fixture = Fixture::with(|settings| {
        settings.failpoints = failpoints;
        settings.group_max = group_max;
    })
    .await;
    let held = fixture.hold().await;
    let plans: Vec<_> = (0..jobs)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.execute_plan(plan(&format!("k{number}"))).await })
        })
        .collect();
    fixture.queued(jobs).await;
    let before = commits.load(Ordering::SeqCst);
    held.let_go().await;
    for plan in plans {
        assert!(matches!(
            plan.await.unwrap().unwrap(),
            ClaimOutcome::Open(_)
        ));
    }
    let made = commits.load(Ordering::SeqCst) - before;
    assert!(expected.contains(&made), "{made} commits for {jobs} jobs");
    assert_eq!(fixture.notes().await.len(), jobs);
}

#[tokio::test]
async fn requests_that_wait_together_share_a_commit() {
    check_commits(128, 50, 1..=10).await;
}

#[tokio::test]
async fn groups_of_one_commit_one_by_one() {
    check_commits(1, 10, 11..=11).await;
}

#[tokio::test]
async fn no_response_is_sent_before_the_commit() {
    let answered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (count, see) = (Arc::clone(&answered), Arc::clone(&seen));
    let failpoints = Failpoints::calling(move |name| {
        if name == "sqlite.commit.after" {
            see.lock().unwrap().push(count.load(Ordering::SeqCst));
        }
    });
    let fixture = Fixture::with(|settings| settings.failpoints = failpoints).await;
    seen.lock().unwrap().clear();
    fixture.store.execute_plan(plan("first")).await.unwrap();
    answered.fetch_add(1, Ordering::SeqCst);
    fixture.store.execute_plan(plan("second")).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [0, 1],
        "each commit comes before its results"
    );
}

#[tokio::test]
async fn an_idle_store_commits_nothing() {
    let (failpoints, commits) = counted();
    let fixture = Fixture::with(|settings| settings.failpoints = failpoints).await;
    let before = commits.load(Ordering::SeqCst);
    fixture.notes().await;
    assert_eq!(commits.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_writer_that_panics_around_its_commit_goes_on() {
    for (place, kept) in [
        ("sqlite.commit.before", false),
        ("sqlite.commit.after", true),
    ] {
        let strikes = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&strikes);
        let failpoints = Failpoints::calling(move |name| {
            let is_struck = name == place && asked.swap(false, Ordering::SeqCst);
            assert!(!is_struck, "on purpose");
        });
        let fixture = Fixture::with(|settings| settings.failpoints = failpoints).await;
        strikes.store(true, Ordering::SeqCst);
        let struck = fixture.store.execute_plan(plan("k")).await;
        assert_matches!(struck, Err(StoreError::Unavailable { .. }));
        let again = fixture.store.execute_plan(plan("k")).await.unwrap();
        assert_eq!(
            !matches!(again, ClaimOutcome::Open(_)),
            kept,
            "{place}: {again:?}"
        );
        assert_eq!(fixture.notes().await.len(), 1, "{place}");
    }
}

#[tokio::test]
async fn a_failing_member_rolls_back_alone() {
    let fixture = Fixture::new().await;
    let write = |text: &'static str| {
        fixture
            .store
            .write(move |conn| conn.execute(INSERT, [text]))
    };
    let twice = |conn: &Connection| {
        conn.execute(INSERT, ["half"])?;
        conn.execute(INSERT, ["half"])
    };
    let (first, bad, last) =
        tokio::join!(write("first"), fixture.store.write(twice), write("last"));
    assert_eq!((first.unwrap(), last.unwrap()), (1, 1));
    assert_matches!(bad, Err(StoreError::Statement { .. }));
    assert_eq!(fixture.notes().await, ["first", "last"]);
}

#[tokio::test]
async fn a_panic_affects_no_other() {
    let fixture = Fixture::new().await;
    let panicking = |conn: &Connection| {
        conn.execute(INSERT, ["lost"])?;
        panic!("on purpose")
    };
    let bad = fixture.store.write::<()>(panicking).await;
    assert_matches!(bad, Err(StoreError::Statement { .. }));
    fixture.insert("kept").await;
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_clock_that_panics_affects_no_other() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let fixture = Fixture::with(|settings| {
        let clock = settings.clock.clone();
        settings.clock = Clock::new(move || {
            assert!(!broken.load(Ordering::SeqCst), "on purpose");
            clock.now()
        });
    })
    .await;
    is_broken.store(true, Ordering::SeqCst);
    let bad = fixture.store.purge_keys().await;
    assert_matches!(bad, Err(StoreError::Statement { .. }));
    is_broken.store(false, Ordering::SeqCst);
    fixture.store.execute_plan(plan("kept")).await.unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_write_that_ends_its_transaction_is_refused_and_affects_no_other() {
    let fixture = Fixture::new().await;
    for end in [
        "COMMIT",
        "END",
        "ROLLBACK",
        "RELEASE hapax_member",
        "ROLLBACK TO HAPAX_MEMBER",
    ] {
        let write = move |conn: &Connection| {
            conn.execute(INSERT, [format!("before {end}")])?;
            conn.execute_batch(end)
        };
        let bad = fixture.store.write(write).await;
        assert_matches!(bad, Err(StoreError::Statement { .. }), "{end}");
    }
    fixture.insert("kept").await;
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_write_does_not_end_its_transaction_by_a_statement_that_the_writer_prepared() {
    let fixture = Fixture::new().await;
    // After this the connection has cached all statements of the writer, also those for failures.
    let failed = fixture
        .store
        .write(|conn| conn.execute_batch("no SQL"))
        .await;
    assert!(failed.is_err());
    for end in [
        "COMMIT",
        "ROLLBACK",
        "RELEASE hapax_member",
        "BEGIN IMMEDIATE",
    ] {
        let write = move |conn: &Connection| {
            conn.execute(INSERT, [format!("before {end}")])?;
            conn.prepare_cached(end)?.execute([])
        };
        let bad = fixture.store.write(write).await;
        assert_matches!(bad, Err(StoreError::Statement { .. }), "{end}");
        let mut ending = plan("half");
        ending.statements.push(Statement::new(end, []));
        let bad = fixture.store.execute_plan(ending).await;
        assert!(bad.is_err(), "{end}: {bad:?}");
    }
    assert!(fixture.notes().await.is_empty());
}

/// Inserts a dangling reference, which is only checked at the commit.
fn dangle(conn: &Connection) -> rusqlite::Result<usize> {
    conn.execute("INSERT INTO child (parent) VALUES (7)", [])
}

type Wrote = Result<usize, StoreError>;

/// Writes a dangling reference and a note, which are queued together.
async fn dangle_beside(fixture: &Fixture, text: &'static str) -> (Wrote, Wrote) {
    let note = move |conn: &Connection| conn.execute(INSERT, [text]);
    let held = fixture.hold().await;
    let together = async { tokio::join!(fixture.store.write(dangle), fixture.store.write(note)) };
    let let_go = async {
        fixture.queued(2).await;
        held.let_go().await;
    };
    let (outcome, ()) = tokio::join!(together, let_go);
    outcome
}

async fn family() -> Fixture {
    let fixture = Fixture::new().await;
    let tables = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
    let steps = [(1, "family", tables)];
    fixture.store.migrate("family", &steps).await.unwrap();
    fixture
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_is_reported_to_its_transaction() {
    let mut tries = 0;
    let fixture = loop {
        let fixture = family().await;
        let alone = fixture.store.write(dangle).await;
        assert_matches!(alone, Err(StoreError::Statement { .. }));
        match dangle_beside(&fixture, "lost").await {
            (Err(StoreError::Unavailable { .. }), Err(StoreError::Unavailable { .. })) => {
                break fixture;
            }
            // If the writer was delayed between the two, each had its own group.
            (Err(_), Ok(_)) if tries < 20 => tries += 1,
            outcome => panic!("{outcome:?}"),
        }
    };
    assert!(
        fixture.notes().await.is_empty(),
        "unacknowledged writes are not kept"
    );
    let (bad, neighbour) = dangle_beside(&fixture, "kept").await;
    assert_matches!(bad, Err(StoreError::Statement { .. }));
    neighbour.unwrap();
}

#[tokio::test]
async fn a_request_that_was_given_up_before_it_began_does_not_begin() {
    let fixture = Fixture::new().await;
    let held = fixture.hold().await;
    let store = fixture.store.clone();
    let given_up = tokio::spawn(async move { store.execute_plan(plan("given up")).await });
    fixture.queued(1).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    held.let_go().await;
    fixture.store.write(|_| Ok(())).await.unwrap();
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_write_may_have_savepoints_of_its_own() {
    let fixture = Fixture::new().await;
    let write = |conn: &Connection| {
        conn.execute(INSERT, ["kept"])?;
        conn.execute_batch("SAVEPOINT mine")?;
        conn.execute(INSERT, ["undone"])?;
        conn.execute_batch("ROLLBACK TO mine; RELEASE mine")
    };
    fixture.store.write(write).await.unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn the_bell_rings_after_a_commit_that_holds_events() {
    let fixture = Fixture::new().await;
    let mut subscription = fixture.store.notifier().subscribe();
    fixture.store.execute_plan(plan("k")).await.unwrap();
    subscription.notified().await;
}
