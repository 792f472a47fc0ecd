//! Conformance tests of keys: lists by a filter, and single keys.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    admin::{KeyFilter, KeyState, KeySummary},
    event::Headers,
    idempotency::{Claim, OnExpired},
    phases::Entry,
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Phases, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, check_missing, hostile, long, pages, short},
    scene::{HOUR, LEASE, OPERATION, Scene, named, of},
};
use crate::{
    events::{RETENTION, claim, claim_of, event, response, scope, single_shot},
    store::Statement,
};

/// Keys are listed with the newest claim first, and none is repeated or left out, even if several
/// were claimed at the same time.
pub async fn keys_are_listed_in_pages_the_newest_claim_first<S: AdminUnderTest>() {
    let scene = some_keys::<S>().await;
    for limit in [1, 2, 7, 100] {
        let all = listed(&scene, &KeyFilter::default(), limit).await;
        let operations: Vec<&str> = all.iter().map(|key| key.operation.as_str()).collect();
        let expected = [["refunds"; 7], ["payments"; 7], ["orders"; 7]].concat();
        assert_eq!(operations, expected);
        let keys: BTreeSet<&str> = all.iter().map(|key| key.key.as_str()).collect();
        assert_eq!(keys.len(), 21, "a page repeats or omits a key");
    }
}

/// Every field of the filter selects keys.
pub async fn every_field_of_the_filter_selects_keys<S: AdminUnderTest>() {
    let scene = some_keys::<S>().await;
    let (first, last) = (scene.now().as_millis() - 2 * HOUR_MS, scene.now());
    let second = Timestamp::from_millis(first + HOUR_MS);
    check(&scene, 7, |it| it.operation = Some("orders".to_owned())).await;
    check(&scene, 0, |it| it.operation = Some("order".to_owned())).await;
    check(&scene, 9, |it| it.tenant = Some(named("alice"))).await;
    check(&scene, 12, |it| it.tenant = Some(named("bob"))).await;
    check(&scene, 7, |it| it.state = Some(KeyState::InProgress)).await;
    check(&scene, 14, |it| it.state = Some(KeyState::Completed)).await;
    check(&scene, 0, |it| it.state = Some(KeyState::Failed)).await;
    check(&scene, 0, |it| it.state = Some(KeyState::Tombstone)).await;
    check(&scene, 7, |it| it.key = Some("payments".to_owned())).await;
    check(&scene, 1, |it| it.key = Some("payments3".to_owned())).await;
    check(&scene, 0, |it| it.key = Some("payments9".to_owned())).await;
    check(&scene, 0, |it| it.key = Some("Payments".to_owned())).await;
    check(&scene, 0, |it| it.key = Some("ayments".to_owned())).await;
    check(&scene, 21, |it| it.key = Some(String::new())).await;
    // A time is included in `since` and not in `until`.
    check(&scene, 14, |it| it.since = Some(second)).await;
    check(&scene, 7, |it| it.until = Some(second)).await;
    check(&scene, 7, |it| {
        (it.since, it.until) = (Some(second), Some(last));
    })
    .await;
    check(&scene, 3, |it| {
        (it.since, it.key) = (Some(last), Some("refunds".to_owned()));
        it.tenant = Some(named("alice"));
    })
    .await;
    check(&scene, 0, |it| {
        (it.until, it.key) = (Some(last), Some("refunds".to_owned()));
    })
    .await;
}

/// A key is found by the beginning of its short hash, in any case.
pub async fn a_key_is_found_by_its_short_hash<S: AdminUnderTest>() {
    let scene = some_keys::<S>().await;
    let hash = scope("a", "b", "orders5").key.short_hash();
    for length in [4, 8, 16] {
        let short = format!("#{}", &hash[..length]);
        check(&scene, 1, |it| it.key = Some(short.clone())).await;
        let upper = short.to_uppercase();
        check(&scene, 1, |it| it.key = Some(upper)).await;
        let of_other = Some(named("alice"));
        check(&scene, 0, |it| {
            (it.key, it.tenant) = (Some(short.clone()), of_other);
        })
        .await;
    }
    check(&scene, 0, |it| it.key = Some(format!("#{hash}0"))).await;
    check(&scene, 0, |it| it.key = Some(format!("#{}", long()))).await;
}

/// A key whose response was purged is listed as a tombstone.
pub async fn a_key_whose_response_was_purged_is_a_tombstone<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let gone = Claim {
        on_expired: OnExpired::Gone,
        ..claim("k")
    };
    let tx = scene.fixture.claim(gone).await;
    tx.complete(&response("{}"), Effect::Keep).await.must();
    scene.advance(RETENTION).await;
    while !scene.store().purge_keys().await.must().is_empty() {}
    check(&scene, 1, |it| it.state = Some(KeyState::Tombstone)).await;
    check(&scene, 0, |it| it.state = Some(KeyState::Completed)).await;
    let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    let key = key.must();
    assert_eq!(
        (key.summary.state, key.summary.status),
        (KeyState::Tombstone, None)
    );
    assert_eq!((key.body, key.headers), (None, Vec::new()));
    assert_eq!(key.on_expired, "gone");
}

/// A value of a filter is never interpreted.
pub async fn a_hostile_filter_of_keys_finds_nothing<S: AdminUnderTest>() {
    let scene = some_keys::<S>().await;
    for word in hostile() {
        let hash = Some(format!("#{word}"));
        let word = Some(word);
        check(&scene, 0, |it| it.key.clone_from(&word)).await;
        check(&scene, 0, |it| it.key.clone_from(&hash)).await;
        check(&scene, 0, |it| it.operation.clone_from(&word)).await;
    }
    for word in ["%", "_", "*", "#%", "#_", "orders\0"] {
        check(&scene, 0, |it| it.key = Some(word.to_owned())).await;
    }
    let [first, last] = [i64::MIN, i64::MAX].map(Timestamp::from_millis);
    check(&scene, 21, |it| it.since = Some(first)).await;
    check(&scene, 0, |it| it.until = Some(first)).await;
    check(&scene, 0, |it| it.since = Some(last)).await;
    check(&scene, 21, |it| it.until = Some(last)).await;
}

/// A key that contains special characters is found by its beginning, and nothing else is.
pub async fn a_key_with_special_characters_is_found_by_its_beginning<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for key in ["100%", "100_0", "1000", "a'b\"c", "\\d", "[e]", "~f", "F"] {
        scene.complete("alice", key).await;
    }
    for (prefix, expected) in [
        ("100", 3),
        ("100%", 1),
        ("100_", 1),
        ("a'", 1),
        ("\\", 1),
        ("[", 1),
        ("~", 1),
        ("f", 0),
        ("F", 1),
    ] {
        check(&scene, expected, |it| it.key = Some(prefix.to_owned())).await;
    }
    let key = scene.admin.key(&scene.ops, None, OPERATION, "a'b\"c").await;
    assert_eq!(key.must().summary.key, "a'b\"c");
}

/// A completed key is read with its response, which is not in its debug output.
pub async fn a_completed_key_is_read_with_its_response<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.complete("alice", "k").await;
    let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
    let key = key.must();
    let summary = &key.summary;
    assert_eq!(
        (summary.tenant.as_str(), summary.operation.as_str()),
        ("alice", OPERATION)
    );
    assert_eq!(summary.short_hash, claim("k").scope.key.short_hash());
    assert_eq!(
        (summary.state, summary.status),
        (KeyState::Completed, Some(201))
    );
    assert_eq!((summary.epoch, summary.lease_until), (1, None));
    assert!(summary.body_bytes >= 8, "{summary:?}");
    assert_eq!(summary.created_at, scene.now());
    assert_eq!(summary.completed_at, Some(scene.now()));
    assert_eq!(summary.expires_at, scene.now().after(RETENTION));
    let body = key.body.as_ref().expect("there is a response");
    assert_eq!(
        (&body.raw, body.bytes),
        (&Bytes::from_static(b"{\"id\":1}"), 8)
    );
    assert_eq!(body.content_type.as_deref(), Some("application/json"));
    let kind = ("content-type".to_owned(), "application/json".to_owned());
    assert_eq!(key.headers, [kind]);
    assert_eq!(summary.fingerprint, "01".repeat(32));
    assert_eq!((key.on_expired.as_str(), key.is_lapsed), ("new", false));
    assert_eq!(key.request_bytes, None);
    assert!(!format!("{key:?}").contains("id"), "{key:?}");
    let all = KeyFilter::default();
    let page = scene.admin.keys(&scene.ops, &all, None, 10);
    assert_eq!(page.await.must().items, [key.summary]);
}

/// The resource that a response names in its `Location` is stored with the key, however the request
/// ran.
pub async fn a_key_names_the_resource_of_its_response<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let created = |id: &str| {
        let mut created = response("{}");
        let location = Bytes::from(format!("https://shop.example/orders/{id}?part=1"));
        created.headers.push(("location".to_owned(), location));
        created
    };
    let atomic = async |id: &str| {
        let tx = scene.fixture.claim(claim("atomic")).await;
        tx.complete(&created(id), Effect::Keep).await.must();
    };
    atomic("o1").await;
    let mut tx = scene.fixture.claim(claim("event")).await;
    tx.emit(event("o2")).expect("an event is emitted");
    tx.complete(&created("o2"), Effect::Keep).await.must();
    let owned = scene.enter("phased").await;
    let tx = scene.store().phase(&owned, None, Headers::new()).await;
    let completed = tx.must().complete(&created("o3"), Effect::Keep).await;
    completed.must();
    let mut plan = single_shot::<Statement<S>>(claim("plan"), Vec::new(), "{}");
    plan.response = created("o4");
    scene.store().execute_plan(plan).await.must();
    let mut refused = created("o5");
    refused.status = 404;
    let tx = scene.fixture.claim(claim("refused")).await;
    tx.complete(&refused, Effect::Keep).await.must();
    let check = async |key: &str, id: Option<&str>| {
        let key = scene.admin.key(&scene.ops, None, OPERATION, key).await;
        let id = id.filter(|_| !S::IS_ENCRYPTED);
        assert_eq!(key.must().summary.resource_id.as_deref(), id);
    };
    check("atomic", Some("o1")).await;
    check("event", Some("o2")).await;
    check("phased", Some("o3")).await;
    check("plan", Some("o4")).await;
    check("refused", None).await;
    let all = listed(&scene, &KeyFilter::default(), 10).await;
    let ids: BTreeSet<_> = all.into_iter().filter_map(|it| it.resource_id).collect();
    let expected = ["o1", "o2", "o3", "o4"].into_iter();
    let expected = expected.filter(|_| !S::IS_ENCRYPTED).map(str::to_owned);
    assert_eq!(ids, expected.collect());
    // The next request with an expired key overwrites its row.
    scene.advance(RETENTION).await;
    atomic("o6").await;
    check("atomic", Some("o6")).await;
}

/// A key in progress is read with its recovery point and its lease.
pub async fn a_key_in_progress_is_read_with_its_recovery_point<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let entry = Entry {
        claim: claim("k"),
        lease: LEASE,
        request: Some(Bytes::from_static(b"a request")),
        recovery_point: None,
    };
    let ClaimOutcome::Open(owned) = scene.store().enter(entry).await.must() else {
        panic!("the key should be free");
    };
    let phase = scene.store().phase(&owned, Some("charged"), Headers::new());
    phase.await.must().commit().await.must();
    let look = async || {
        let key = scene.admin.key(&scene.ops, None, OPERATION, "k").await;
        key.must()
    };
    let key = look().await;
    assert_eq!(key.summary.state, KeyState::InProgress);
    assert_eq!(key.summary.recovery_point.as_deref(), Some("charged"));
    let until = key.summary.lease_until.expect("it has an owner");
    assert!(until > scene.now() && !key.is_lapsed, "{key:?}");
    assert!(key.request_bytes.is_some_and(|bytes| bytes >= 9));
    assert_eq!((key.body.is_none(), key.summary.status), (true, None));
    scene.advance(LEASE + Duration::from_millis(1)).await;
    assert!(look().await.is_lapsed);
}

/// A key is named by tenant and operation where several have it.
pub async fn a_key_of_several_tenants_is_read_by_its_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for tenant in ["alice", "bob"] {
        scene.complete(tenant, "k").await;
    }
    let (admin, ops) = (&scene.admin, &scene.ops);
    check_invalid(&admin.key(ops, None, OPERATION, "k").await, "tenant");
    for tenant in ["alice", "bob"] {
        let key = admin.key(ops, Some(tenant), OPERATION, "k").await.must();
        assert_eq!(key.summary.tenant, tenant);
    }
    check_missing(&admin.key(ops, Some("carol"), OPERATION, "k").await);
    check_missing(&admin.key(ops, None, "POST /refunds", "k").await);
    check_missing(&admin.key(ops, None, OPERATION, "K").await);
    for word in hostile() {
        check_missing(&admin.key(ops, Some(&word), OPERATION, "k").await);
        check_missing(&admin.key(ops, None, &word, "k").await);
        check_missing(&admin.key(ops, None, OPERATION, &word).await);
    }
}

/// An operator of a tenant sees only that tenant's keys, with any filter.
pub async fn an_operator_of_a_tenant_sees_its_own_keys<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for tenant in ["alice", "bob"] {
        scene.complete(tenant, "k").await;
    }
    let alice = of("alice");
    let hash = format!("#{}", claim("k").scope.key.short_hash());
    let fields: [fn(&mut KeyFilter, String); 5] = [
        |_, _| {},
        |it, _| it.key = Some("k".to_owned()),
        |it, hash| it.key = Some(hash),
        |it, _| it.state = Some(KeyState::Completed),
        |it, _| it.operation = Some(OPERATION.to_owned()),
    ];
    for set in fields {
        let mut filter = KeyFilter::default();
        set(&mut filter, hash.clone());
        let page = scene.admin.keys(&alice, &filter, None, 10).await.must();
        let tenants: Vec<&str> = page.items.iter().map(|key| key.tenant.as_str()).collect();
        assert_eq!(tenants, ["alice"], "{filter:?}");
    }
    let of_bob = KeyFilter {
        tenant: Some(named("bob")),
        ..KeyFilter::default()
    };
    let page = scene.admin.keys(&alice, &of_bob, None, 10).await.must();
    assert!(page.items.is_empty() && page.next.is_none(), "{page:?}");
    check_missing(&scene.admin.key(&alice, Some("bob"), OPERATION, "k").await);
    // The tenant need not be named, even if another one has the same key.
    let own = scene.admin.key(&alice, None, OPERATION, "k").await.must();
    assert_eq!(own.summary.tenant, "alice");
}

const HOUR_MS: i64 = 3_600 * 1_000;

/// Seven keys of each of three operations, whose times are an hour apart. The keys of `payments`
/// are in progress, and the even ones are of Alice.
async fn some_keys<S: AdminUnderTest>() -> Scene<S> {
    let scene = Scene::<S>::new().await;
    for (operation, wait) in [
        ("orders", Duration::ZERO),
        ("payments", HOUR),
        ("refunds", HOUR),
    ] {
        scene.advance(wait).await;
        for number in 1..=7 {
            let tenant = if number % 2 == 0 { "alice" } else { "bob" };
            let key = format!("{operation}{number}");
            // Longer than the test moves the clock.
            let claim = Claim {
                retention: 24 * HOUR,
                ..claim_of(scope(tenant, operation, &key))
            };
            if operation == "payments" {
                let entry = Entry {
                    claim,
                    lease: LEASE,
                    request: None,
                    recovery_point: None,
                };
                let entered = scene.store().enter(entry).await.must();
                assert!(matches!(entered, ClaimOutcome::Open(_)));
            } else {
                let tx = scene.fixture.claim(claim).await;
                tx.complete(&response("{}"), Effect::Keep).await.must();
            }
        }
    }
    scene
}

async fn listed<S: AdminUnderTest>(
    scene: &Scene<S>,
    filter: &KeyFilter,
    limit: usize,
) -> Vec<KeySummary> {
    pages(limit, async |before: Option<String>| {
        let before = before.as_deref();
        scene.admin.keys(&scene.ops, filter, before, limit).await
    })
    .await
}

async fn check<S: AdminUnderTest>(
    scene: &Scene<S>,
    expected: usize,
    set: impl FnOnce(&mut KeyFilter),
) {
    let mut filter = KeyFilter::default();
    set(&mut filter);
    let found = listed(scene, &filter, 2).await.len();
    assert_eq!(found, expected, "{}", short(&filter));
}
