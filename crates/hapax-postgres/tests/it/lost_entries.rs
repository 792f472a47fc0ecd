//! Entries of phased keys whose result is lost: the attempt finds its own row, or has it released, and
//! touches no other.

use std::time::Duration;

use hapax::{
    idempotency::Taken,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, KeyMaintenance, Keys, Phases, StoreError},
};
use hapax_postgres::{Postgres, Settings};
use hapax_testkit::{
    assert_matches,
    clock::seeded_random,
    events::{RETENTION, claim, response},
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};

use crate::fixture::{Fixture, PATIENCE, settings};

const LEASE: Duration = Duration::from_mins(1);
const ROWS: &str = "SELECT count(*) FROM hapax.idempotency_key";
const LAPSE: &str = "UPDATE hapax.idempotency_key SET lease_until = now()";
const EXPIRE: &str = "UPDATE hapax.idempotency_key SET expires_at = now()";

/// A store, and another node whose connections go through a proxy.
struct Scene {
    fixture: Fixture,
    proxy: Proxy,
    node: Postgres,
}

impl Scene {
    async fn new(set: impl FnOnce(&mut Settings)) -> Self {
        let fixture = Fixture::new().await;
        let proxy = Proxy::to_postgres(fixture.database.address());
        let mut settings = settings(&proxy.url(&fixture.database.url()));
        // The identities of its attempts are others than those of the first store.
        settings.random = seeded_random(2);
        set(&mut settings);
        let node = Postgres::open(settings).await.unwrap();
        Self {
            fixture,
            proxy,
            node,
        }
    }

    /// A node that cannot connect again after its entry was committed and the result was lost. The entry
    /// has failed.
    async fn with_a_lost_entry() -> Self {
        let scene = Self::new(|settings| settings.wait = Duration::from_millis(200)).await;
        let trap = scene.proxy.once(entering(), Deed::HoldAfter);
        let node = scene.node.clone();
        let entered = tokio::spawn(async move { node.enter(entry("k")).await });
        trap.sprung().await;
        scene.proxy.shut().await;
        assert_matches!(entered.await.unwrap(), Err(StoreError::Unavailable { .. }));
        assert_eq!(scene.fixture.count(ROWS).await, 1);
        scene
    }

    /// Lets the node connect again, waits until it has tried to release its row, and checks that the
    /// database has not done so.
    async fn check_kept(&self, what: &str) {
        let trap = self.proxy.once(releasing(), Deed::HoldAfter);
        self.proxy.refuse(false).await;
        trap.sprung().await;
        assert_eq!(trap.answers(), ["DELETE 0"], "{what}");
        trap.release();
    }
}

#[tokio::test]
async fn an_entry_whose_result_is_lost_owns_its_key() {
    for deed in [Deed::CutBefore, Deed::CutAfter] {
        let scene = Scene::new(|_| {}).await;
        let released = scene.proxy.always(releasing(), Deed::HoldAfter);
        let trap = scene.proxy.once(entering(), deed);
        let owned = open(scene.node.enter(entry("k")).await);
        assert_eq!(trap.count(), 1, "{deed:?}");
        assert_eq!((owned.epoch, owned.resumed), (1, false), "{deed:?}");
        assert_eq!(owned.recovery_point.as_deref(), Some("sent"), "{deed:?}");
        check_row(&scene.fixture, &owned).await;
        // Its owner may have called another system since.
        let other = scene.fixture.store.enter(entry("k")).await.unwrap();
        assert_matches!(other, ClaimOutcome::Taken(Taken::InProgress), "{deed:?}");
        let kept = scene.node.finish(&owned, &response("k")).await;
        assert_eq!(kept.unwrap(), RETENTION, "{deed:?}");
        assert_eq!(scene.fixture.count(ROWS).await, 1, "{deed:?}");
        assert_eq!(released.count(), 0, "{deed:?}");
        scene.fixture.idle().await;
    }
}

#[tokio::test]
async fn an_entry_over_an_expired_key_whose_result_is_lost_owns_its_key() {
    for deed in [Deed::CutBefore, Deed::CutAfter] {
        let scene = Scene::new(|_| {}).await;
        let old = open(scene.fixture.store.enter(entry("k")).await);
        let finished = scene.fixture.store.finish(&old, &response("old")).await;
        finished.unwrap();
        scene.fixture.run(EXPIRE).await;
        let anew = Moment::containing("entered_epoch = epoch + 1");
        let trap = scene.proxy.once(anew, deed);
        let owned = open(scene.node.enter(entry("k")).await);
        assert_eq!(trap.count(), 1, "{deed:?}");
        assert_eq!((owned.epoch, owned.resumed), (2, false), "{deed:?}");
        check_row(&scene.fixture, &owned).await;
    }
}

#[tokio::test]
async fn the_row_of_an_entry_that_has_failed_is_released() {
    let scene = Scene::with_a_lost_entry().await;
    let early = scene.fixture.store.enter(entry("k")).await.unwrap();
    assert_matches!(early, ClaimOutcome::Taken(Taken::InProgress));
    scene.proxy.refuse(false).await;
    eventually(PATIENCE, async || scene.fixture.count(ROWS).await == 0).await;
    let retried = open(scene.fixture.store.enter(entry("k")).await);
    assert_eq!((retried.epoch, retried.resumed), (1, false));
}

#[tokio::test]
async fn the_row_of_another_attempt_is_not_released() {
    let scene = Scene::with_a_lost_entry().await;
    let store = &scene.fixture.store;
    assert!(store.forget(&claim("k").scope).await.unwrap());
    let other = open(store.enter(entry("k")).await);
    scene.check_kept("another attempt").await;
    check_row(&scene.fixture, &other).await;
    assert_eq!(
        store.finish(&other, &response("k")).await.unwrap(),
        RETENTION
    );
}

#[tokio::test]
async fn a_row_that_another_owner_has_taken_over_is_not_released() {
    let scene = Scene::with_a_lost_entry().await;
    scene.fixture.run(LAPSE).await;
    let other = open(scene.fixture.store.enter(entry("k")).await);
    assert_eq!((other.epoch, other.resumed), (2, true));
    scene.check_kept("another owner").await;
    check_row(&scene.fixture, &other).await;
}

#[tokio::test]
async fn a_row_that_has_a_response_is_not_released() {
    let scene = Scene::with_a_lost_entry().await;
    scene.fixture.run(LAPSE).await;
    let other = open(scene.fixture.store.enter(entry("k")).await);
    let finished = scene.fixture.store.finish(&other, &response("k")).await;
    assert_eq!(finished.unwrap(), RETENTION);
    scene.check_kept("a response").await;
    assert_eq!(scene.fixture.count(ROWS).await, 1);
}

/// The statement that enters a key which has no row.
fn entering() -> Moment {
    Moment::statement(|text| {
        text.starts_with("INSERT INTO hapax.idempotency_key\n") && text.contains("'in_progress'")
    })
}

/// The statement that releases a row by the identity of its attempt.
fn releasing() -> Moment {
    Moment::statement(|text| {
        text.starts_with("DELETE FROM hapax.idempotency_key") && text.contains("owner = ")
    })
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: LEASE,
        request: None,
        recovery_point: Some("sent".to_owned()),
    }
}

#[track_caller]
fn open(entered: Result<ClaimOutcome<Ownership>, StoreError>) -> Ownership {
    match entered.unwrap() {
        ClaimOutcome::Open(owned) => owned,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    }
}

/// Checks that the row of a key is that of its owner.
async fn check_row(fixture: &Fixture, owned: &Ownership) {
    let row = fixture.store.look_up(&owned.scope).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.created_at), (owned.epoch, owned.created_at));
}
