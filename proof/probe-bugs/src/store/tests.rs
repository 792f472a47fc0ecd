//! Tests of the store: what it remembers, also after it was opened again, and what its bugs forget.

use tempfile::TempDir;

use super::*;

fn open(folder: &TempDir, bug: Option<Bug>) -> Store {
    let path = folder.path().join("state");
    Store::open(&path, Duration::from_mins(1), false, bug).expect("the file opens")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn scope(key: &str) -> Scope {
    Scope {
        node: 0,
        principal: "alice".to_owned(),
        operation: "POST /orders".to_owned(),
        key: key.to_owned(),
    }
}

fn row(key: &str) -> Row {
    Row {
        scope: scope(key),
        fingerprint: "a".to_owned(),
        response: Response::new(201),
        stored_at: clock::since_epoch(),
    }
}

fn claim(store: &Store, key: &str, fingerprint: &str) -> Claim {
    let claim = store.claim(&scope(key), 0, fingerprint);
    claim.expect("the file takes a line")
}

#[test]
fn a_key_runs_and_replays_and_does_so_after_a_restart() {
    let folder = folder();
    let store = open(&folder, None);
    assert!(matches!(claim(&store, "k", "a"), Claim::Open));
    assert!(matches!(claim(&store, "k", "a"), Claim::InProgress));
    assert!(matches!(claim(&store, "k", "b"), Claim::Mismatch(None)));
    store.commit(0, None, Some(row("k"))).expect("a commit");
    for store in [store, open(&folder, None)] {
        assert!(matches!(claim(&store, "k", "a"), Claim::Replay(_)));
        assert!(matches!(claim(&store, "k", "b"), Claim::Mismatch(Some(_))));
    }
}

#[test]
fn a_released_key_and_one_that_ran_before_a_restart_are_free() {
    let folder = folder();
    let store = open(&folder, None);
    assert!(matches!(claim(&store, "k", "a"), Claim::Open));
    store.release(&scope("k"), 0).expect("a release");
    assert!(matches!(claim(&store, "k", "b"), Claim::Open));
    assert!(matches!(claim(&open(&folder, None), "k", "a"), Claim::Open));
}

#[test]
fn a_line_that_was_cut_is_dropped() {
    let folder = folder();
    let store = open(&folder, None);
    store.commit(0, None, Some(row("k"))).expect("a commit");
    store.commit(0, None, Some(row("l"))).expect("a commit");
    let path = folder.path().join("state");
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::write(&path, &bytes[..bytes.len() - 5]).expect("the file");
    let store = open(&folder, None);
    assert!(matches!(claim(&store, "k", "a"), Claim::Replay(_)));
    assert!(matches!(claim(&store, "l", "a"), Claim::Open));
    store.commit(0, None, Some(row("l"))).expect("a commit");
    let store = open(&folder, None);
    assert!(matches!(claim(&store, "l", "a"), Claim::Replay(_)));
}

#[test]
fn an_expired_key_is_new_or_gone() {
    let folder = folder();
    let old = Row {
        stored_at: Duration::ZERO,
        ..row("k")
    };
    let store = open(&folder, None);
    store.commit(0, None, Some(old)).expect("a commit");
    assert!(matches!(claim(&store, "k", "a"), Claim::Open));
    let path = folder.path().join("state");
    let store = Store::open(&path, Duration::from_mins(1), true, None).expect("the file opens");
    assert!(matches!(claim(&store, "k", "a"), Claim::Expired));
    let store = open(&folder, Some(Bug::ExpiredNever));
    assert!(matches!(claim(&store, "k", "a"), Claim::Replay(_)));
}

#[test]
fn bugs_of_the_store_forget_or_lock_keys() {
    let folder = folder();
    let bug = Some(Bug::KillLeavesKeyLocked);
    assert!(matches!(claim(&open(&folder, bug), "k", "a"), Claim::Open));
    let store = open(&folder, bug);
    assert!(matches!(claim(&store, "k", "a"), Claim::InProgress));
    store.release(&scope("k"), 0).expect("a release");
    assert!(matches!(claim(&open(&folder, bug), "k", "a"), Claim::Open));

    let bug = Some(Bug::ReplayFromMemoryOnly);
    let store = open(&folder, bug);
    store
        .commit(0, None, Some(row("memory")))
        .expect("a commit");
    assert!(matches!(claim(&store, "memory", "a"), Claim::Replay(_)));
    assert!(matches!(
        claim(&open(&folder, bug), "memory", "a"),
        Claim::Open
    ));

    let store = open(&folder, Some(Bug::ReplayReexecutesAfterMany));
    for number in 0..=KEPT_ROWS {
        let key = format!("many-{number}");
        store.commit(0, None, Some(row(&key))).expect("a commit");
    }
    assert!(matches!(claim(&store, "many-0", "a"), Claim::Open));
    assert!(matches!(claim(&store, "many-1", "a"), Claim::Replay(_)));

    let store = open(&folder, Some(Bug::RaceOnSecondNode));
    assert!(matches!(claim(&store, "race", "a"), Claim::Open));
    let second = store.claim(&scope("race"), 1, "a").expect("a claim");
    assert!(matches!(second, Claim::Open));
}
