//! Conformance tests of the list of accepted messages.

use std::{collections::BTreeSet, time::Duration};

use hapax::{
    Timestamp,
    admin::{Message, MessageFilter},
    event::Headers,
    inbox::{self, Acceptance},
    store::{Effect, Keys, Transaction},
};

use super::{
    AdminUnderTest,
    checks::{Must, hostile, pages, short},
    scene::{Scene, of},
};
use crate::events::{claim, response};

/// Messages are listed in pages, the newest first, even if several have the same time.
pub async fn messages_are_listed_in_pages_the_newest_first<S: AdminUnderTest>() {
    let scene = some_messages::<S>().await;
    for limit in [1, 2, 4, 100] {
        let all = listed(&scene, &MessageFilter::default(), limit).await;
        assert!(all.is_sorted_by(|one, next| one.received_at >= next.received_at));
        let ids: BTreeSet<&str> = all.iter().map(|it| it.message_id.as_str()).collect();
        assert_eq!((all.len(), ids.len()), (9, 9));
    }
}

/// Every field of the filter selects messages.
pub async fn every_field_of_the_filter_selects_messages<S: AdminUnderTest>() {
    let scene = some_messages::<S>().await;
    let second = Timestamp::from_millis(scene.now().as_millis() - DAY_MS);
    check(&scene, 4, |it| it.consumer = Some("mailer".to_owned())).await;
    check(&scene, 0, |it| it.consumer = Some("Mailer".to_owned())).await;
    check(&scene, 3, |it| it.source = Some("old".to_owned())).await;
    check(&scene, 1, |it| it.message_id = Some("m4".to_owned())).await;
    check(&scene, 0, |it| it.message_id = Some("m".to_owned())).await;
    check(&scene, 0, |it| {
        (it.message_id, it.source) = (Some("m4".to_owned()), Some("old".to_owned()));
    })
    .await;
    check(&scene, 1, |it| {
        (it.message_id, it.consumer) = (Some("m4".to_owned()), Some("mailer".to_owned()));
    })
    .await;
    // A time is included in `since` and not in `until`.
    check(&scene, 6, |it| it.since = Some(second)).await;
    check(&scene, 3, |it| it.until = Some(second)).await;
    check(&scene, 3, |it| {
        (it.since, it.until) = (Some(second), Some(scene.now()));
    })
    .await;
    check(&scene, 1, |it| {
        (it.since, it.message_id) = (Some(second), Some("m4".to_owned()));
    })
    .await;
    check(&scene, 0, |it| {
        (it.until, it.message_id) = (Some(second), Some("m4".to_owned()));
    })
    .await;
    let [first, last] = [i64::MIN, i64::MAX].map(Timestamp::from_millis);
    check(&scene, 9, |it| {
        (it.since, it.until) = (Some(first), Some(last));
    })
    .await;
}

/// A value of a filter is never interpreted.
pub async fn a_hostile_filter_of_messages_finds_nothing<S: AdminUnderTest>() {
    let scene = some_messages::<S>().await;
    let mut words = hostile();
    words.extend(["%", "*", "mailer\0"].map(str::to_owned));
    for word in words {
        let word = Some(word);
        check(&scene, 0, |it| it.consumer.clone_from(&word)).await;
        check(&scene, 0, |it| it.source.clone_from(&word)).await;
        check(&scene, 0, |it| it.message_id.clone_from(&word)).await;
    }
}

/// A message is listed with its payload's hash and its times.
pub async fn a_listed_message_has_the_fields_of_the_message<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    accept(&scene, &[("it's", "\"shop\"", "m 1")]).await;
    let [found] = listed(&scene, &MessageFilter::default(), 10)
        .await
        .try_into()
        .must();
    assert_eq!(
        (found.consumer.as_str(), found.source.as_str()),
        ("it's", "\"shop\"")
    );
    assert_eq!(
        (found.message_id.as_str(), found.received_at),
        ("m 1", scene.now())
    );
    // SHA-256 of the payload.
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(found.payload_hash, hash);
}

/// A message keeps the result that its consumer recorded, and the time at which its effect ended. A
/// duplicate changes neither.
pub async fn a_message_keeps_the_result_and_the_time_of_its_effect<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let received_at = scene.now();
    let message = |id: &str| inbox::Message::new("ledger", "bank", id, b"hello").must();
    let mut tx = scene.store().begin(None, Headers::new()).await.must();
    assert!(tx.record_result("x").is_err());
    let applied = Some("it's \"applied\"");
    for (id, result) in [("m1", applied), ("m2", Some("")), ("m3", None)] {
        let accepted = tx.accept(&message(id)).await.must();
        assert_eq!(accepted, Acceptance::First);
        if let Some(result) = result {
            tx.record_result(result).must();
        }
    }
    scene.fixture.clock.advance(Duration::from_secs(2));
    tx.commit().await.must();
    let mut tx = scene.fixture.claim(claim("k")).await;
    let accepted = tx.accept(&message("m4")).await.must();
    assert_eq!(accepted, Acceptance::First);
    tx.record_result("under a key").must();
    tx.complete(&response("k"), Effect::Keep).await.must();
    scene.fixture.clock.advance(Duration::from_secs(2));
    let mut tx = scene.store().begin(None, Headers::new()).await.must();
    let accepted = tx.accept(&message("m1")).await.must();
    assert_eq!(accepted, Acceptance::Duplicate);
    assert!(tx.record_result("again").is_err());
    tx.commit().await.must();

    let ended_at = received_at.after(Duration::from_secs(2));
    for (id, received_at, result) in [
        ("m1", received_at, applied),
        ("m2", received_at, Some("")),
        ("m3", received_at, None),
        ("m4", ended_at, Some("under a key")),
    ] {
        let filter = MessageFilter {
            message_id: Some(id.to_owned()),
            ..MessageFilter::default()
        };
        let [found] = listed(&scene, &filter, 10).await.try_into().must();
        assert_eq!(found.received_at, received_at, "{id}");
        assert_eq!(found.processed_at, Some(ended_at), "{id}");
        assert_eq!(found.result.as_deref(), result, "{id}");
    }
}

/// Messages of many sources with one id and one time are all listed, in pages and by their id.
pub async fn messages_of_many_sources_with_one_id_are_all_listed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let sources: Vec<String> = (1..=250)
        .map(|number| format!("shop-{number:03}"))
        .collect();
    let messages = sources
        .iter()
        .map(|source| ("ledger", source.as_str(), "evt_1"));
    accept(&scene, &messages.collect::<Vec<_>>()).await;
    let all = listed(&scene, &MessageFilter::default(), 7).await;
    let mut found: Vec<String> = all.into_iter().map(|it| it.source).collect();
    found.sort_unstable();
    assert_eq!(found, sources);
    let by_id = MessageFilter {
        message_id: Some("evt_1".to_owned()),
        ..MessageFilter::default()
    };
    // They are on one page, in order.
    let page = scene
        .admin
        .messages(&scene.ops, &by_id, None, 7)
        .await
        .must();
    let found: Vec<String> = page.items.into_iter().map(|it| it.source).collect();
    assert_eq!((found, page.next), (sources, None));
}

/// Messages belong to no tenant, so an operator of a tenant sees none.
pub async fn an_operator_of_a_tenant_sees_no_messages<S: AdminUnderTest>() {
    let scene = some_messages::<S>().await;
    let by_id = MessageFilter {
        message_id: Some("m1".to_owned()),
        ..MessageFilter::default()
    };
    for filter in [MessageFilter::default(), by_id] {
        let seen = scene.admin.messages(&of("a"), &filter, None, 10).await;
        let seen = seen.must();
        assert!(seen.items.is_empty() && seen.next.is_none(), "{seen:?}");
    }
    check(&scene, 1, |it| it.message_id = Some("m1".to_owned())).await;
}

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Nine messages of two consumers and two sources, three on each of three days.
async fn some_messages<S: AdminUnderTest>() -> Scene<S> {
    let scene = Scene::<S>::new().await;
    for number in 1..=9 {
        let consumer = if number % 2 == 0 { "mailer" } else { "billing" };
        let source = if number <= 3 { "old" } else { "shop" };
        accept(&scene, &[(consumer, source, &format!("m{number}"))]).await;
        if number % 3 == 0 && number < 9 {
            scene.advance(Duration::from_hours(24)).await;
        }
    }
    scene
}

/// Accepts messages, each a consumer, a source and an id, in one transaction.
pub(super) async fn accept<S: AdminUnderTest>(scene: &Scene<S>, messages: &[(&str, &str, &str)]) {
    let mut tx = scene.store().begin(None, Headers::new()).await.must();
    for (consumer, source, id) in messages {
        let message = inbox::Message::new(*consumer, *source, *id, b"hello").must();
        assert_eq!(tx.accept(&message).await.must(), Acceptance::First);
    }
    tx.commit().await.must();
}

async fn listed<S: AdminUnderTest>(
    scene: &Scene<S>,
    filter: &MessageFilter,
    limit: usize,
) -> Vec<Message> {
    pages(limit, async |before: Option<String>| {
        let before = before.as_deref();
        scene
            .admin
            .messages(&scene.ops, filter, before, limit)
            .await
    })
    .await
}

async fn check<S: AdminUnderTest>(
    scene: &Scene<S>,
    expected: usize,
    set: impl FnOnce(&mut MessageFilter),
) {
    let mut filter = MessageFilter::default();
    set(&mut filter);
    let found = listed(scene, &filter, 2).await.len();
    assert_eq!(found, expected, "{}", short(&filter));
}
