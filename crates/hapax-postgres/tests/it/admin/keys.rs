//! The list of keys, the details of one key, and purging a key.

use std::collections::BTreeSet;

use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, AuditAdmin as _, AuditFilter, KeyAdmin as _, KeyFilter, KeyState,
        KeySummary, PAGE_MAX,
    },
    idempotency::Taken,
    key::Tenant,
    saga::Definition,
    store::{
        ClaimOutcome, Effect, KeyMaintenance as _, Keys as _, Phases as _, SagaRows as _,
        Transaction as _,
    },
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::events::{claim, claim_of, response, scope};

use super::scene::Scene;

/// Keys of three operations and two tenants; the keys of one operation have the same creation time.
const SOME: &str = "
    INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, response_status, response_headers,
         response_body, created_at, completed_at, expires_at, lease_until)
    SELECT CASE number % 2 WHEN 0 THEN 'alice' ELSE 'bob' END, operation, operation || number, '',
           state, 201, '', '{}', at, at, at + interval '1 day',
           CASE state WHEN 'in_progress' THEN at END
    FROM (VALUES ('orders', 'completed', '2026-01-01 00:00:00.123456Z'::timestamptz),
                 ('payments', 'in_progress', '2026-01-02Z'), ('refunds', 'failed', '2026-01-03Z'))
             AS of (operation, state, at),
         generate_series(1, 7) AS number";

#[tokio::test]
async fn keys_are_listed_by_a_filter_in_pages_the_newest_claim_first() {
    let scene = Scene::new().await;
    scene.fixture.plain.batch_execute(SOME).await.unwrap();
    let all = pages(&scene, &KeyFilter::default(), 2).await;
    let operations: Vec<&str> = all.iter().map(|key| key.operation.as_str()).collect();
    let newest_first = [["refunds"; 7], ["payments"; 7], ["orders"; 7]].concat();
    assert_eq!(operations, newest_first);
    let names: BTreeSet<&str> = all.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(names.len(), 21, "a page omitted or repeated a key");
    check(&scene, 7, |it| it.operation = Some("orders".to_owned())).await;
    check(&scene, 9, |it| {
        it.tenant = Some(Tenant::new("alice").unwrap());
    })
    .await;
    check(&scene, 7, |it| it.state = Some(KeyState::InProgress)).await;
    check(&scene, 7, |it| it.state = Some(KeyState::Failed)).await;
    check(&scene, 0, |it| it.state = Some(KeyState::Tombstone)).await;
    check(&scene, 7, |it| it.key = Some("payments".to_owned())).await;
    check(&scene, 1, |it| it.key = Some("payments3".to_owned())).await;
    check(&scene, 0, |it| it.key = Some("payments9".to_owned())).await;
    let hash = scope("a", "b", "orders5").key.short_hash();
    for short in [4, 8, 16] {
        check(&scene, 1, |it| {
            it.key = Some(format!("#{}", &hash[..short]));
        })
        .await;
    }
    check(&scene, 1, |it| {
        it.key = Some(format!("#{}", hash.to_uppercase()));
    })
    .await;
    let second = Timestamp::from_millis(1_767_312_000_000);
    check(&scene, 14, |it| it.since = Some(second)).await;
    check(&scene, 7, |it| it.until = Some(second)).await;
    check(&scene, 7, |it| {
        (it.since, it.until) = (
            Some(second),
            Some(Timestamp::from_millis(1_767_312_000_001)),
        );
    })
    .await;
}

#[tokio::test]
async fn a_hostile_filter_of_keys_finds_nothing_and_breaks_nothing() {
    let scene = Scene::new().await;
    scene.fixture.plain.batch_execute(SOME).await.unwrap();
    for word in [
        "'; DROP TABLE hapax.idempotency_key; --",
        "%",
        "_",
        "\\",
        "\0",
        "#%",
        "#\0",
        "é\u{202e}",
    ] {
        let word = Some(word.to_owned());
        check(&scene, 0, |it| it.key.clone_from(&word)).await;
        check(&scene, 0, |it| it.operation.clone_from(&word)).await;
    }
    for extreme in [i64::MIN, i64::MAX].map(Timestamp::from_millis) {
        pages(
            &scene,
            &KeyFilter {
                until: Some(extreme),
                ..KeyFilter::default()
            },
            10,
        )
        .await;
    }
    let cursor = format!("{}.{}", i64::MAX, i64::MIN);
    let listed = scene
        .store()
        .keys(&scene.ops, &KeyFilter::default(), Some(&cursor), 50)
        .await;
    assert_eq!(listed.unwrap().items.len(), 21);
}

#[tokio::test]
async fn a_page_looks_at_so_many_keys_and_says_where_the_next_one_begins() {
    let scene = Scene::new().await;
    let many = "
        INSERT INTO hapax.idempotency_key
            (tenant, operation, key, fingerprint, state, created_at, expires_at)
        SELECT 'a', CASE number WHEN 1 THEN 'rare' ELSE 'often' END, 'k' || number, '', 'completed',
               now() + number * interval '1 second', now()
        FROM generate_series(1, 19500) AS number";
    scene.fixture.plain.batch_execute(many).await.unwrap();
    let rare = KeyFilter {
        operation: Some("rare".to_owned()),
        ..KeyFilter::default()
    };
    let first = scene
        .store()
        .keys(&scene.ops, &rare, None, 10)
        .await
        .unwrap();
    assert!(first.items.is_empty(), "{:?}", first.items);
    let next = first.next.expect("the first page is not the last one");
    let second = scene
        .store()
        .keys(&scene.ops, &rare, Some(&next), 10)
        .await
        .unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
    // Most keys have this prefix, so the list scans them by time instead.
    check(&scene, 19_500, |it| it.key = Some("k".to_owned())).await;
    check(&scene, 10_612, |it| it.key = Some("k1".to_owned())).await;
}

#[tokio::test]
async fn a_key_is_shown_with_its_answer_and_how_it_stands() {
    let scene = Scene::new().await;
    let store = scene.store();
    complete(&scene, "alice", "k").await;
    let key = store
        .key(&scene.ops, None, "POST /orders", "k")
        .await
        .unwrap();
    assert_eq!(
        (key.summary.state, key.summary.status),
        (KeyState::Completed, Some(201))
    );
    assert_eq!((key.summary.epoch, key.summary.body_bytes), (1, 8));
    assert_eq!(key.body.clone().unwrap().raw, "{\"id\":1}");
    let kind = ("content-type".to_owned(), "application/json".to_owned());
    assert_eq!(key.headers, [kind]);
    assert!(
        !format!("{key:?}").contains("id"),
        "the stored response is in the debug output: {key:?}"
    );

    enter(&scene, "phased").await;
    let key = store
        .key(&scene.ops, None, "POST /orders", "phased")
        .await
        .unwrap();
    assert_eq!(key.summary.state, KeyState::InProgress);
    assert!(key.summary.lease_until.is_some() && !key.is_lapsed);
    assert!(key.body.is_none() && key.summary.status.is_none());

    // Two tenants have used the same key with the same operation.
    complete(&scene, "bob", "k").await;
    let outcome = store.key(&scene.ops, None, "POST /orders", "k").await;
    assert!(
        matches!(
            outcome,
            Err(AdminError::Invalid { ref field, .. }) if field == "tenant"
        ),
        "{outcome:?}"
    );
    let key = store
        .key(&scene.ops, Some("bob"), "POST /orders", "k")
        .await
        .unwrap();
    assert_eq!(key.summary.tenant, "bob");
    missing(&store.key(&scene.ops, None, "POST /refunds", "k").await);
}

#[tokio::test]
async fn a_purged_key_is_free_again_and_the_log_says_why() {
    let scene = Scene::new().await;
    let store = scene.store();
    complete(&scene, "alice", "k").await;
    let purge = async |key: &str, reason: &str| purge(store, &scene.ops, None, key, reason).await;
    let result = purge("k", " ").await;
    assert!(
        matches!(
            result,
            Err(AdminError::Invalid { ref field, .. }) if field == "reason"
        ),
        "{result:?}"
    );
    assert!(matches!(
        store.claim(claim("k")).await.unwrap(),
        ClaimOutcome::Taken(Taken::Replay { .. })
    ));
    purge("k", "charged by hand").await.unwrap();
    assert!(matches!(
        store.claim(claim("k")).await.unwrap(),
        ClaimOutcome::Open(_)
    ));
    missing(&purge("k", "again").await);
    let log = store
        .audit_log(&scene.ops, &AuditFilter::default(), None, 10)
        .await
        .unwrap();
    let [line] = log.items.as_slice() else {
        panic!("{log:?}");
    };
    let hash = claim("k").scope.key.short_hash();
    assert_eq!(
        (line.action.as_str(), line.outcome.as_str()),
        ("purge", "done")
    );
    assert_eq!(line.object, format!("key POST /orders #{hash}"));
    assert_eq!(line.detail["reason"], "charged by hand");
    scene.fixture.idle().await;
}

#[tokio::test]
async fn a_key_in_progress_is_not_purged_whoever_holds_it() {
    let scene = Scene::new().await;
    let store = scene.store();
    let conflict = async |key: &str| {
        let outcome = purge(store, &scene.ops, None, key, "why").await;
        assert!(
            matches!(&outcome, Err(AdminError::Conflict { what }) if what.ends_with("is in progress")),
            "{outcome:?}"
        );
    };
    enter(&scene, "phased").await;
    conflict("phased").await;
    // A transaction claims an expired key, and holds no lock on its row.
    complete(&scene, "alice", "k").await;
    let expire = "UPDATE hapax.idempotency_key SET expires_at = now() WHERE key = 'k'";
    scene.fixture.plain.batch_execute(expire).await.unwrap();
    let tx = scene.fixture.claim(claim("k")).await;
    conflict("k").await;
    tx.rollback().await;
    purge(store, &scene.ops, None, "k", "why").await.unwrap();
    let refused = ("purge".to_owned(), "refused".to_owned());
    let done = ("purge".to_owned(), "done".to_owned());
    assert_eq!(scene.acts().await, [refused.clone(), refused, done]);
}

#[tokio::test]
async fn an_actor_of_a_tenant_sees_and_purges_its_own_keys() {
    let scene = Scene::new().await;
    let store = scene.store();
    for tenant in ["alice", "bob"] {
        complete(&scene, tenant, "k").await;
    }
    let alice = Actor::new("alice").of(Tenant::new("alice").unwrap());
    let list = async |keys: KeyFilter| store.keys(&alice, &keys, None, PAGE_MAX).await.unwrap();
    for keys in [
        KeyFilter::default(),
        KeyFilter {
            key: Some("k".to_owned()),
            ..KeyFilter::default()
        },
        KeyFilter {
            key: Some(format!("#{}", claim("k").scope.key.short_hash())),
            ..KeyFilter::default()
        },
        KeyFilter {
            state: Some(KeyState::Completed),
            ..KeyFilter::default()
        },
    ] {
        let seen = list(keys).await.items;
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0].tenant, "alice");
    }
    let other = Tenant::new("bob").ok();
    assert!(
        list(KeyFilter {
            tenant: other,
            ..KeyFilter::default()
        })
        .await
        .items
        .is_empty()
    );
    missing(&store.key(&alice, Some("bob"), "POST /orders", "k").await);
    missing(&purge(store, &alice, Some("bob"), "k", "why").await);
    // An actor of a tenant need not name the tenant, even if another tenant has the same key.
    let own = store.key(&alice, None, "POST /orders", "k").await.unwrap();
    assert_eq!(own.summary.tenant, "alice");
    purge(store, &alice, None, "k", "why").await.unwrap();
    missing(&store.key(&alice, None, "POST /orders", "k").await);
    store
        .key(&scene.ops, Some("bob"), "POST /orders", "k")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_key_that_was_used_again_since_it_was_looked_at_is_not_purged() {
    let scene = Scene::new().await;
    let store = scene.store();
    let look = async || {
        store
            .key(&scene.ops, None, "POST /orders", "k")
            .await
            .unwrap()
    };
    let purge = async |version: &str| {
        store
            .purge_key(
                &scene.ops,
                None,
                "POST /orders",
                "k",
                version,
                "charged by hand",
            )
            .await
    };
    complete(&scene, "alice", "k").await;
    let seen = look().await.version;
    assert_eq!(
        look().await.version,
        seen,
        "reading a key changes its version"
    );
    // The key is purged, and the client's retry runs again.
    purge(&seen).await.unwrap();
    complete(&scene, "alice", "k").await;
    let outcome = purge(&seen).await;
    let why = "it was used again since; look at it again";
    assert!(
        matches!(&outcome, Err(AdminError::Conflict { what }) if what.ends_with(why)),
        "{outcome:?}"
    );
    let anew = look().await;
    assert_eq!(anew.summary.status, Some(201));
    // The key expires, and a phased request claims it and completes.
    let expire = "UPDATE hapax.idempotency_key SET expires_at = now() WHERE key = 'k'";
    scene.fixture.plain.batch_execute(expire).await.unwrap();
    let outcome = purge(&anew.version).await;
    assert!(
        matches!(&outcome, Err(AdminError::Conflict { what }) if what.ends_with(why)),
        "{outcome:?}"
    );
    purge(&look().await.version).await.unwrap();
    missing(&purge(&seen).await);
    let acts: Vec<_> = scene.acts().await.into_iter().map(|act| act.1).collect();
    assert_eq!(acts, ["done", "refused", "refused", "done"]);
}

/// Twenty operators purge the version that they have all read, concurrently, and the client's retry
/// runs in between: exactly one purge succeeds.
#[tokio::test]
async fn of_many_purges_of_one_version_at_once_one_happens() {
    let scene = Scene::new().await;
    let store = scene.store();
    complete(&scene, "alice", "k").await;
    let seen = store.key(&scene.ops, None, "POST /orders", "k").await;
    let seen = seen.unwrap().version;
    let purges = (0..20).map(|_| {
        let (store, ops, seen) = (store.clone(), scene.ops.clone(), seen.clone());
        tokio::spawn(async move {
            let purged = store.purge_key(&ops, None, "POST /orders", "k", &seen, "why");
            let purged = purged.await;
            // After a successful purge the client sends the request again.
            if purged.is_ok()
                && let ClaimOutcome::Open(tx) = store.claim(claim("k")).await.unwrap()
            {
                tx.complete(&response("again"), Effect::Keep).await.unwrap();
            }
            purged
        })
    });
    let ended = futures_util::future::join_all(purges).await;
    let done = ended.iter().filter(|it| matches!(it, Ok(Ok(())))).count();
    assert_eq!(done, 1, "{ended:?}");
    let left = store.key(&scene.ops, None, "POST /orders", "k").await;
    assert_eq!(left.unwrap().body.unwrap().raw, "again");
    let outcome = store.purged(None).await.unwrap();
    assert_eq!(outcome.until.number, 1);
}

#[tokio::test]
async fn a_purge_is_announced_to_services_and_a_refused_one_is_not() {
    let scene = Scene::new().await;
    let store = scene.store();
    complete(&scene, "alice", "k").await;
    enter(&scene, "phased").await;
    let before = store.purged(None).await.unwrap().until;
    assert!(
        purge(store, &scene.ops, None, "phased", "why")
            .await
            .is_err()
    );
    let outcome = store.purged(Some(&before)).await.unwrap();
    assert_eq!((outcome.keys, &outcome.until), (Some(Vec::new()), &before));
    purge(store, &scene.ops, None, "k", "why").await.unwrap();
    let outcome = store.purged(Some(&before)).await.unwrap();
    assert_eq!(outcome.keys, Some(vec![claim("k").scope]));
}

/// A restored database has another history of purges, or a smaller count, so cached responses are
/// all invalid.
#[tokio::test]
async fn purges_of_another_history_are_not_taken_for_this_ones() {
    let scene = Scene::new().await;
    let store = scene.store();
    for key in ["k", "l"] {
        complete(&scene, "alice", key).await;
        purge(store, &scene.ops, None, key, "why").await.unwrap();
    }
    let now = store.purged(None).await.unwrap().until;
    assert_eq!(now.number, 2);
    let restored = "UPDATE hapax.purge_count SET number = 1;
        DELETE FROM hapax.key_purge WHERE number = 2";
    scene.fixture.plain.batch_execute(restored).await.unwrap();
    assert_eq!(store.purged(Some(&now)).await.unwrap().keys, None);
    // The other history has the same count, of purges that this node does not know.
    let mut elsewhere = store.purged(None).await.unwrap().until;
    elsewhere.history.push('x');
    assert_eq!(store.purged(Some(&elsewhere)).await.unwrap().keys, None);
}

#[tokio::test]
async fn a_key_is_not_purged_while_a_saga_lives_that_was_started_under_it() {
    let scene = Scene::new().await;
    let store = scene.store();
    let mut tx = scene.fixture.claim(claim("k")).await;
    let saga = Definition::<Tx>::new("checkout", 1).begin("s1", None, Bytes::new());
    tx.start_saga(&saga).await.unwrap();
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    let attention = "UPDATE hapax.saga SET state = 'needs_attention'";
    scene.fixture.plain.batch_execute(attention).await.unwrap();
    let outcome = purge(store, &scene.ops, None, "k", "why").await;
    let why = "is kept until saga s1, which was started under it, ends";
    assert!(
        matches!(&outcome, Err(AdminError::Conflict { what }) if what.ends_with(why)),
        "{outcome:?}"
    );
    let ended = "UPDATE hapax.saga SET state = 'failed', ended_at = now()";
    scene.fixture.plain.batch_execute(ended).await.unwrap();
    purge(store, &scene.ops, None, "k", "why").await.unwrap();
}

/// Reads a key, and purges the version that it read.
async fn purge(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    key: &str,
    reason: &str,
) -> Result<(), AdminError> {
    let operation = "POST /orders";
    let found = store.key(actor, tenant, operation, key).await?;
    let version = &found.version;
    store
        .purge_key(actor, tenant, operation, key, version, reason)
        .await
}

async fn complete(scene: &Scene, tenant: &str, key: &str) {
    let claim = claim_of(scope(tenant, "POST /orders", key));
    let tx = scene.fixture.claim(claim).await;
    tx.complete(&response("{\"id\":1}"), Effect::Keep)
        .await
        .unwrap();
}

async fn enter(scene: &Scene, key: &str) {
    let entered = scene.store().enter(hapax::phases::Entry {
        claim: claim(key),
        lease: std::time::Duration::from_mins(1),
        request: None,
    });
    assert!(matches!(entered.await.unwrap(), ClaimOutcome::Open(_)));
}

#[track_caller]
fn missing<T: std::fmt::Debug>(outcome: &Result<T, AdminError>) {
    assert!(
        matches!(outcome, Err(AdminError::NotFound { .. })),
        "{outcome:?}"
    );
}

async fn check(scene: &Scene, expected: usize, set: impl FnOnce(&mut KeyFilter)) {
    let mut filter = KeyFilter::default();
    set(&mut filter);
    let found = pages(scene, &filter, PAGE_MAX).await.len();
    assert_eq!(found, expected, "{filter:?}");
}

/// Collects every key that matches, page by page.
async fn pages(scene: &Scene, filter: &KeyFilter, limit: usize) -> Vec<KeySummary> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = scene
            .store()
            .keys(&scene.ops, filter, before.as_deref(), limit)
            .await;
        let page = page.unwrap();
        assert!(page.items.len() <= limit);
        all.extend(page.items);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}
