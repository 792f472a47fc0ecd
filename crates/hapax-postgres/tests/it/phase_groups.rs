//! Groups of entries and responses of phased keys: which of them share a transaction, and what a member
//! costs the others.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    failpoint::Failpoints,
    idempotency::Taken,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, KeyMaintenance, Keys, Phases, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Settings};
use hapax_testkit::{
    assert_matches,
    events::{RETENTION, claim, fingerprint, response},
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, PATIENCE, settings};

/// The number of requests in a group of these tests.
const MEMBERS: usize = 64;
/// The statement of a group.
const GROUP: &str = "), entered AS (";
/// The number of transactions by which the keys other than the first were written last.
const TRANSACTIONS: &str =
    "SELECT count(DISTINCT xmin::text) FROM hapax.idempotency_key WHERE key <> 'first'";
/// The number of keys that were entered by the members of a group.
const ENTERED: &str = "SELECT count(*) FROM hapax.idempotency_key WHERE key LIKE 'k%'";
const LEASE: Duration = Duration::from_mins(1);

type Entered = Result<ClaimOutcome<Ownership>, StoreError>;
type Finished = Result<Duration, StoreError>;

/// Stops the next commit of a store, and counts its commits.
struct Gate {
    is_closed: Arc<AtomicBool>,
    is_reached: Arc<AtomicBool>,
    commits: Arc<AtomicUsize>,
    release: Sender<()>,
}

impl Gate {
    fn of(settings: &mut Settings) -> Self {
        let (release, held): (Sender<()>, Receiver<()>) = mpsc::channel();
        let gate = Self {
            is_closed: Arc::default(),
            is_reached: Arc::default(),
            commits: Arc::default(),
            release,
        };
        let (is_closed, is_reached) = (Arc::clone(&gate.is_closed), Arc::clone(&gate.is_reached));
        let (commits, held) = (Arc::clone(&gate.commits), Mutex::new(held));
        settings.failpoints = Failpoints::calling(move |name| match name {
            "postgres.commit.before" if is_closed.swap(false, Ordering::SeqCst) => {
                is_reached.store(true, Ordering::SeqCst);
                // Until the gate is dropped.
                let _released = held.lock().unwrap().recv();
            }
            "postgres.commit.after" => {
                commits.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        });
        gate
    }

    /// Has an entry take the only lane, runs the others until they wait for it, and lets all go.
    /// Returns the number of commits until all of `waited` have ended.
    async fn together<T, R>(
        self,
        store: &Postgres,
        start: impl FnOnce() -> (Vec<JoinHandle<T>>, R),
    ) -> (Vec<T>, R, usize) {
        let before = self.commits.load(Ordering::SeqCst);
        self.is_closed.store(true, Ordering::SeqCst);
        let first = enter(store, "first");
        eventually(PATIENCE, async || self.is_reached.load(Ordering::SeqCst)).await;
        let (waited, others) = start();
        eventually(PATIENCE, async || store.queued() == MEMBERS).await;
        drop(self.release);
        assert_matches!(first.await.unwrap(), Ok(ClaimOutcome::Open(_)));
        let ended = join_all(waited).await;
        let ended = ended.into_iter().map(Result::unwrap).collect();
        let commits = self.commits.load(Ordering::SeqCst) - before;
        (ended, others, commits)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn entries_and_responses_that_wait_together_are_one_transaction() {
    let (fixture, gate) = gated().await;
    let mut owned = Vec::new();
    for number in 0..MEMBERS / 2 {
        owned.push(own(&fixture.store, &format!("finished {number}")).await);
    }
    let start = || {
        let finishing: Vec<_> = owned.iter().map(|it| finish(&fixture.store, it)).collect();
        let entering = |number: usize| enter(&fixture.store, &format!("entered {number}"));
        let entering: Vec<_> = (0..MEMBERS / 2).map(entering).collect();
        (entering, finishing)
    };
    let (entered, finishing, commits) = gate.together(&fixture.store, start).await;
    for finished in join_all(finishing).await {
        assert_eq!(finished.unwrap().unwrap(), RETENTION);
    }
    // That of the first entry, and that of the group.
    assert_eq!(commits, 2);
    assert_eq!(fixture.count(TRANSACTIONS).await, 1);
    for owned in &owned {
        check_replay(&fixture, owned).await;
    }
    for (number, entered) in entered.into_iter().enumerate() {
        let (owned, key) = (open(entered), format!("entered {number}"));
        assert_eq!(owned.scope, claim(&key).scope);
        assert_eq!(owned.recovery_point, Some(format!("at {key}")));
        let row = fixture.store.look_up(&owned.scope).await.unwrap().unwrap();
        assert_eq!((row.epoch, row.created_at), (owned.epoch, owned.created_at));
        let kept = fixture.store.finish(&owned, &response(&key)).await;
        assert_eq!(kept.unwrap(), RETENTION);
    }
    fixture.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_that_a_group_cannot_write_gets_its_own_outcome() {
    let (fixture, gate) = gated().await;
    let (store, other) = (&fixture.store, fixture.beside().await);
    // Keys that are not free, for different reasons.
    let done = own(store, "done").await;
    store.finish(&done, &response("done")).await.unwrap();
    let expired = own(store, "expired").await;
    store.finish(&expired, &response("old")).await.unwrap();
    let expire = "UPDATE hapax.idempotency_key SET expires_at = now() WHERE key = 'expired'";
    fixture.run(expire).await;
    own(store, "in progress").await;
    let busy = other.claim(claim("busy")).await;
    // Owners whose response cannot be stored at once, or not at all.
    let late = own(store, "late").await;
    store.give_back(&late).await.unwrap();
    own(store, "late").await;
    let locked = own(store, "locked").await;
    let holder = fixture.database.client().await;
    let hold = "BEGIN; SELECT 1 FROM hapax.idempotency_key WHERE key = 'locked' FOR UPDATE";
    holder.batch_execute(hold).await.unwrap();
    let start = || {
        let mut other_payload = entry("in progress");
        other_payload.claim.fingerprint = fingerprint(2);
        let named = ["done", "expired", "in progress", "busy", "twin", "twin"];
        let mut entering: Vec<_> = named.iter().map(|key| enter(store, key)).collect();
        entering.push(enter_with(store, other_payload));
        let free = |number: usize| enter(store, &format!("k{number}"));
        entering.extend((entering.len()..MEMBERS - 2).map(free));
        (entering, (finish(store, &late), finish(store, &locked)))
    };
    let (entered, (fenced, waits), _) = gate.together(store, start).await;
    let mut entered = entered.into_iter();
    let mut next = || entered.next().unwrap().unwrap();
    let replay = next();
    let ClaimOutcome::Taken(Taken::Replay { response: told, .. }) = replay else {
        panic!("expected a replay, got {replay:?}");
    };
    assert_eq!(told, response("done"));
    assert_matches!(next(), ClaimOutcome::Open(owned) if owned.epoch == 2 && !owned.resumed);
    assert_matches!(next(), ClaimOutcome::Taken(Taken::InProgress));
    assert_matches!(next(), ClaimOutcome::Taken(Taken::InProgress));
    let twins = [next(), next()];
    let owners = twins
        .iter()
        .filter(|it| matches!(it, ClaimOutcome::Open(_)));
    assert_eq!(owners.count(), 1, "{twins:?}");
    let in_progress = ClaimOutcome::Taken(Taken::InProgress);
    assert!(twins.contains(&in_progress), "{twins:?}");
    assert_matches!(next(), ClaimOutcome::Taken(Taken::Mismatch));
    for entered in entered {
        open(entered);
    }
    assert_matches!(fenced.await.unwrap(), Err(StoreError::Fenced));
    assert!(!waits.is_finished(), "the locked row was not waited for");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap(), RETENTION);
    check_replay(&fixture, &locked).await;
    busy.rollback().await;
    fixture.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_that_makes_its_group_fail_fails_alone() {
    let (fixture, gate) = gated().await;
    let store = &fixture.store;
    let start = || {
        let mut bad = entry("bad");
        // PostgreSQL stores no such text.
        bad.recovery_point = Some("\0".to_owned());
        let good = |number: usize| enter(store, &format!("k{number}"));
        let good: Vec<_> = (1..MEMBERS).map(good).collect();
        (good, enter_with(store, bad))
    };
    let (entered, bad, _) = gate.together(store, start).await;
    for entered in entered {
        open(entered);
    }
    assert_matches!(bad.await.unwrap(), Err(StoreError::Statement { .. }));
    own(store, "bad").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_lost_result_the_entries_of_a_group_go_on_and_its_responses_fail() {
    for (deed, is_committed) in [(Deed::CutBefore, false), (Deed::CutAfter, true)] {
        let fixture = Fixture::new().await;
        let proxy = Proxy::to_postgres(fixture.database.address());
        let mut settings = settings(&proxy.url(&fixture.database.url()));
        settings.wait = PATIENCE;
        let gate = Gate::of(&mut settings);
        let node = Postgres::open(settings).await.unwrap();
        let finished = own(&fixture.store, "finished").await;
        let trap = proxy.once(Moment::containing(GROUP), deed);
        let start = || {
            let entering = |number: usize| enter(&node, &format!("k{number}"));
            let entering: Vec<_> = (1..MEMBERS).map(entering).collect();
            (entering, finish(&node, &finished))
        };
        let (entered, finishing, _) = gate.together(&node, start).await;
        assert_eq!(trap.count(), 1, "{deed:?}");
        for entered in entered {
            let owned = open(entered);
            assert_eq!((owned.epoch, owned.resumed), (1, false), "{deed:?}");
            let kept = node.finish(&owned, &response("k")).await;
            assert_eq!(kept.unwrap(), RETENTION, "{deed:?}");
        }
        assert_eq!(fixture.count(ENTERED).await, 63, "{deed:?}");
        let lost = finishing.await.unwrap();
        assert_matches!(lost, Err(StoreError::Unavailable { .. }), "{deed:?}");
        // The owner tries again. If its response is stored, the key is not its own any more.
        let again = node.finish(&finished, &response("finished")).await;
        if is_committed {
            assert_matches!(again, Err(StoreError::Fenced));
        } else {
            assert_eq!(again.unwrap(), RETENTION);
        }
        check_replay(&fixture, &finished).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_rows_of_a_group_whose_entries_have_failed_are_released() {
    let fixture = Fixture::new().await;
    let proxy = Proxy::to_postgres(fixture.database.address());
    let mut settings = settings(&proxy.url(&fixture.database.url()));
    settings.wait = Duration::from_millis(200);
    let gate = Gate::of(&mut settings);
    let node = Postgres::open(settings).await.unwrap();
    let trap = proxy.once(Moment::containing(GROUP), Deed::HoldAfter);
    let start = || {
        let entering = |number: usize| enter(&node, &format!("k{number}"));
        let entering: Vec<_> = (0..MEMBERS).map(entering).collect();
        (entering, ())
    };
    let losing = async {
        trap.sprung().await;
        proxy.shut().await;
    };
    let ((entered, (), _), ()) = tokio::join!(gate.together(&node, start), losing);
    for lost in entered {
        assert_matches!(lost, Err(StoreError::Unavailable { .. }));
    }
    assert_eq!(fixture.count(ENTERED).await, 64);
    proxy.refuse(false).await;
    eventually(PATIENCE, async || fixture.count(ENTERED).await == 0).await;
    let retried = own(&fixture.store, "k7").await;
    assert_eq!((retried.epoch, retried.resumed), (1, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_large_request_shares_no_transaction_and_groups_can_be_disabled() {
    let fixture = Fixture::with(|settings| settings.group_max = 1).await;
    let keys = ["a", "b", "c"].map(|key| enter(&fixture.store, key));
    for entered in join_all(keys).await {
        open(entered.unwrap());
    }
    assert_eq!(fixture.count(TRANSACTIONS).await, 3);
    let (fixture, gate) = gated().await;
    let store = &fixture.store;
    let start = || {
        let small = |number: usize| enter(store, &format!("k{number}"));
        let small: Vec<_> = (0..MEMBERS).map(small).collect();
        let mut large = entry("large");
        large.request = Some(vec![7; 128 * 1024].into());
        (small, enter_with(store, large))
    };
    let (entered, large, _) = gate.together(store, start).await;
    for entered in entered {
        open(entered);
    }
    let large = open(large.await.unwrap());
    assert_eq!(fixture.count(TRANSACTIONS).await, 2);
    assert!(store.forget(&large.scope).await.unwrap());
}

/// A store with one lane, and its gate.
async fn gated() -> (Fixture, Gate) {
    let mut gate = None;
    let fixture = Fixture::with(|settings| {
        settings.lanes = 1;
        settings.wait = Duration::from_millis(200);
        gate = Some(Gate::of(settings));
    })
    .await;
    (fixture, gate.unwrap())
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: LEASE,
        request: None,
        recovery_point: Some(format!("at {key}")),
    }
}

fn enter(store: &Postgres, key: &str) -> JoinHandle<Entered> {
    enter_with(store, entry(key))
}

fn enter_with(store: &Postgres, entry: Entry) -> JoinHandle<Entered> {
    let store = store.clone();
    tokio::spawn(async move { store.enter(entry).await })
}

/// Stores the name of the key as its response.
fn finish(store: &Postgres, owned: &Ownership) -> JoinHandle<Finished> {
    let (store, owned) = (store.clone(), owned.clone());
    let response = response(owned.scope.key.as_str());
    tokio::spawn(async move { store.finish(&owned, &response).await })
}

#[track_caller]
fn open(entered: Entered) -> Ownership {
    match entered.unwrap() {
        ClaimOutcome::Open(owned) => owned,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    }
}

async fn own(store: &Postgres, key: &str) -> Ownership {
    open(store.enter(entry(key)).await)
}

async fn check_replay(fixture: &Fixture, owned: &Ownership) {
    let key = owned.scope.key.as_str();
    let entered = fixture.store.enter(entry(key)).await.unwrap();
    let ClaimOutcome::Taken(Taken::Replay { response: told, .. }) = entered else {
        panic!("expected a replay of {key}, got {entered:?}");
    };
    assert_eq!(told, response(key));
}
