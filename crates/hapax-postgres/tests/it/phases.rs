//! Phased requests on PostgreSQL: overlapping owners, which the conformance suite cannot produce on
//! every store.

use std::time::Duration;

use hapax::{
    event::Headers,
    idempotency::Taken,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, Effect, KeyMaintenance, Phases, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    assert_matches,
    events::{RETENTION, claim, event, fingerprint, response},
    proxy::{Deed, Moment, Proxy},
};

use crate::fixture::{Fixture, INSERT, settings};

#[tokio::test]
async fn an_owner_whose_phase_is_open_when_its_key_is_taken_over_commits_nothing() {
    let (here, there) = two().await;
    for ending in [Ending::Commit, Ending::Complete, Ending::Refuse] {
        let late = own(&here, Duration::ZERO).await;
        let mut open = here
            .store
            .phase(&late, Some("late"), Headers::new())
            .await
            .unwrap();
        write(&mut open, "late").await;
        let owner = own(&there, Duration::from_mins(1)).await;
        assert!(owner.epoch > late.epoch);
        let ended = match ending {
            Ending::Commit => open.commit().await,
            Ending::Complete => open
                .complete(&response("late"), Effect::Keep)
                .await
                .map(drop),
            Ending::Refuse => open
                .complete(&response("late"), Effect::Drop)
                .await
                .map(drop),
        };
        assert_matches!(ended, Err(StoreError::Fenced), "{ending:?}");
        assert_eq!(
            here.count("SELECT count(*) FROM hapax.outbox_event").await,
            0
        );
        assert_eq!(here.notes().await, Vec::<String>::new());
        there.store.give_back(&owner).await.unwrap();
    }
    here.idle().await;
}

#[tokio::test]
async fn an_owner_that_is_ending_its_phase_is_not_dead() {
    let (here, there) = two().await;
    let owner = own(&here, Duration::ZERO).await;
    // The commit of the other owner is under way: the row is locked, and its change not visible
    // yet.
    let mut open = here
        .store
        .phase(&owner, Some("slow"), Headers::new())
        .await
        .unwrap();
    let hold = "UPDATE hapax.idempotency_key SET recovery_point = recovery_point";
    open.execute(hold, &[]).await.unwrap();
    let outcome = there
        .store
        .enter(entry(Duration::from_mins(1)))
        .await
        .unwrap();
    assert_matches!(outcome, ClaimOutcome::Taken(Taken::InProgress));
    open.commit().await.unwrap();
    let next = own(&there, Duration::from_mins(1)).await;
    assert_eq!(next.recovery_point.as_deref(), Some("slow"));
}

#[tokio::test]
async fn a_key_that_another_request_has_entered_meanwhile_is_not_taken_over() {
    let here = Fixture::new().await;
    let proxy = Proxy::to_postgres(here.database.address());
    let slow = settings(&proxy.url(&here.database.url()));
    let slow = Postgres::open(slow).await.unwrap();
    let first = own(&here, Duration::ZERO).await;
    let held = proxy.once(Moment::containing("row.epoch + 1"), Deed::HoldBefore);
    let retry = tokio::spawn(async move { slow.enter(entry(Duration::from_mins(1))).await });
    held.sprung().await;
    here.store.release(&first).await.unwrap();
    let mut other = entry(Duration::ZERO);
    other.claim.fingerprint = fingerprint(2);
    let entered = here.store.enter(other).await.unwrap();
    assert!(matches!(&entered, ClaimOutcome::Open(it) if it.epoch == first.epoch));
    held.release();
    let outcome = retry.await.unwrap().unwrap();
    assert_matches!(
        outcome,
        ClaimOutcome::Taken(Taken::Mismatch),
        "it continues an entry of another request"
    );
}

#[tokio::test]
async fn an_entry_never_comes_between_a_claim_and_its_completion() {
    let (here, there) = two().await;
    let mut open = here.claim(claim("k")).await;
    write(&mut open, "atomic").await;
    let told = there
        .store
        .enter(entry(Duration::from_mins(1)))
        .await
        .unwrap();
    assert_matches!(told, ClaimOutcome::Taken(Taken::InProgress));
    open.complete(&response("atomic"), Effect::Keep)
        .await
        .unwrap();
    match there
        .store
        .enter(entry(Duration::from_mins(1)))
        .await
        .unwrap()
    {
        ClaimOutcome::Taken(Taken::Replay { response: told, .. }) => {
            assert_eq!(told, response("atomic"));
        }
        other => panic!("expected a replay, got {other:?}"),
    }
    assert_eq!(here.notes().await, ["atomic"]);
}

#[tokio::test]
async fn a_finished_key_keeps_no_request() {
    let (here, _) = two().await;
    let mut kept = entry(Duration::from_mins(1));
    kept.request = Some("secret".into());
    let ClaimOutcome::Open(owner) = here.store.enter(kept).await.unwrap() else {
        panic!("expected a free key");
    };
    let requests = "SELECT count(request) FROM hapax.idempotency_key";
    assert_eq!(here.count(requests).await, 1);
    let last = here
        .store
        .phase(&owner, None, Headers::new())
        .await
        .unwrap();
    last.complete(&response("done"), Effect::Keep)
        .await
        .unwrap();
    assert_eq!(here.count(requests).await, 0);
}

#[tokio::test]
async fn a_response_whose_commit_was_lost_is_stored_once() {
    let here = Fixture::new().await;
    let proxy = Proxy::to_postgres(here.database.address());
    let node = settings(&proxy.url(&here.database.url()));
    let node = Postgres::open(node).await.unwrap();
    for (deed, is_committed) in [(Deed::CutBefore, false), (Deed::CutAfter, true)] {
        let owner = own(&here, Duration::from_mins(1)).await;
        let trap = proxy.once(Moment::containing("WITH finished AS"), deed);
        let lost = node.finish(&owner, &response("done")).await;
        assert_matches!(lost, Err(StoreError::Unavailable { .. }), "{deed:?}");
        assert_eq!(trap.count(), 1, "{deed:?}");
        // The owner tries again. If its response is stored, the key is not its own any more.
        let again = node.finish(&owner, &response("done")).await;
        if is_committed {
            assert_matches!(again, Err(StoreError::Fenced), "{deed:?}");
        } else {
            assert_eq!(again.unwrap(), RETENTION, "{deed:?}");
        }
        let told = here.store.enter(entry(Duration::ZERO)).await.unwrap();
        let ClaimOutcome::Taken(Taken::Replay { response: told, .. }) = told else {
            panic!("expected a replay, got {told:?}");
        };
        assert_eq!(told, response("done"), "{deed:?}");
        assert!(here.store.forget(&owner.scope).await.unwrap());
    }
    here.idle().await;
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Commit,
    Complete,
    Refuse,
}

/// Two nodes on one database whose claims time out soon.
async fn two() -> (Fixture, Fixture) {
    let here = Fixture::new().await;
    let there = Fixture::on(here.database.clone(), |it| {
        it.wait = Duration::from_millis(200);
    });
    let there = there.await;
    (here, there)
}

fn entry(lease: Duration) -> Entry {
    Entry {
        claim: claim("k"),
        lease,
        request: None,
        recovery_point: None,
    }
}

async fn own(node: &Fixture, lease: Duration) -> Ownership {
    match node.store.enter(entry(lease)).await.unwrap() {
        ClaimOutcome::Open(owned) => owned,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    }
}

async fn write(tx: &mut Tx, note: &str) {
    tx.execute(INSERT, &[&note]).await.unwrap();
    tx.emit(event(note)).unwrap();
}
