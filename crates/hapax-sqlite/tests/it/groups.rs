//! Groups: who shares a commit, and who is answered when.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use hapax::{
    failpoint::Failpoints,
    store::{Keys, Ran, StoreError},
};
use hapax_sqlite::rusqlite::Connection;

use crate::fixture::{Fixture, INSERT, shot};

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

/// Runs `jobs` while the writer is held, so that all of them wait together.
async fn check_commits(group_max: usize, jobs: usize, expected: std::ops::RangeInclusive<usize>) {
    let (failpoints, commits) = counted();
    let fixture = Fixture::with(|settings| {
        settings.failpoints = failpoints;
        settings.group_max = group_max;
    })
    .await;
    let (let_go, held) = mpsc::channel::<()>();
    let store = fixture.store.clone();
    let hold = tokio::spawn(async move { store.write(move |_| Ok(held.recv())).await });
    let shots: Vec<_> = (0..jobs)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.single_shot(shot(&format!("k{number}"))).await })
        })
        .collect();
    while fixture.store.queued() < jobs {
        tokio::task::yield_now().await;
    }
    let before = commits.load(Ordering::SeqCst);
    drop(let_go);
    let _held = hold.await.unwrap().unwrap();
    for shot in shots {
        assert!(matches!(
            shot.await.unwrap().unwrap(),
            Ran::Committed { .. }
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
async fn nobody_is_answered_before_the_commit() {
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
    fixture.store.single_shot(shot("first")).await.unwrap();
    answered.fetch_add(1, Ordering::SeqCst);
    fixture.store.single_shot(shot("second")).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [0, 1],
        "each commit comes before its answer"
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
    assert!(matches!(bad, Err(StoreError::Statement { .. })), "{bad:?}");
    assert_eq!(fixture.notes().await, ["first", "last"]);
}

#[tokio::test]
async fn a_panic_harms_nobody_else() {
    let fixture = Fixture::new().await;
    let panicking = |conn: &Connection| {
        conn.execute(INSERT, ["lost"])?;
        panic!("on purpose")
    };
    let bad = fixture.store.write::<()>(panicking).await;
    assert!(matches!(bad, Err(StoreError::Statement { .. })), "{bad:?}");
    fixture
        .store
        .write(|conn| conn.execute(INSERT, ["kept"]))
        .await
        .unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_write_that_ends_its_transaction_is_refused_and_harms_nobody() {
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
        assert!(
            matches!(bad, Err(StoreError::Statement { .. })),
            "{end}: {bad:?}"
        );
    }
    fixture
        .store
        .write(|conn| conn.execute(INSERT, ["kept"]))
        .await
        .unwrap();
    assert_eq!(fixture.notes().await, ["kept"]);
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
    let mut bell = fixture.store.wake().listen();
    fixture.store.single_shot(shot("k")).await.unwrap();
    bell.heard().await;
}
