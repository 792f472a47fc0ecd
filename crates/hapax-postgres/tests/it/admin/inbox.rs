//! The list of accepted messages.

use hapax::{
    Timestamp,
    admin::{Actor, InboxAdmin as _, Message, MessageFilter},
    key::Tenant,
};

use super::scene::Scene;

/// Messages of two consumers and two sources, three for each point in time.
const SOME: &str = "
    INSERT INTO hapax.inbox_message
        (consumer, message_id, source, payload_hash, received_at, processed_at)
    SELECT CASE number % 2 WHEN 0 THEN 'mailer' ELSE 'billing' END, 'm' || number,
           CASE WHEN number <= 3 THEN 'old' ELSE 'shop' END, '\\x00ff', at, at
    FROM (
        SELECT number, '2026-01-01Z'::timestamptz + (number - 1) / 3 * interval '1 day' AS at
        FROM generate_series(1, 9) AS number
    ) AS some_messages";

#[tokio::test]
async fn messages_are_listed_by_a_filter_in_pages_the_newest_first() {
    let scene = Scene::new().await;
    scene.fixture.plain.batch_execute(SOME).await.unwrap();
    let all = pages(&scene, &MessageFilter::default(), 2).await;
    let moments: Vec<_> = all.iter().map(|it| it.received_at).collect();
    assert_eq!(all.len(), 9);
    assert!(moments.is_sorted_by(|one, next| one >= next), "{moments:?}");
    assert_eq!(all[0].payload_hash, "00ff");
    check(&scene, 4, |it| it.consumer = Some("mailer".to_owned())).await;
    check(&scene, 3, |it| it.source = Some("old".to_owned())).await;
    check(&scene, 1, |it| it.message_id = Some("m4".to_owned())).await;
    check(&scene, 0, |it| it.message_id = Some("m".to_owned())).await;
    check(&scene, 0, |it| {
        (it.message_id, it.source) = (Some("m4".to_owned()), Some("old".to_owned()));
    })
    .await;
    let second = Timestamp::from_millis(1_767_312_000_000);
    check(&scene, 6, |it| it.since = Some(second)).await;
    check(&scene, 3, |it| it.until = Some(second)).await;
    for word in ["'; --", "%", "\0", "\\"] {
        let word = Some(word.to_owned());
        check(&scene, 0, |it| it.consumer.clone_from(&word)).await;
        check(&scene, 0, |it| it.message_id.clone_from(&word)).await;
    }
}

/// A marketplace in which each shop is a source: hundreds of messages have the same id and the same
/// time.
const CROWD: &str = "
    INSERT INTO hapax.inbox_message
        (consumer, message_id, source, payload_hash, received_at, processed_at)
    SELECT 'ledger', 'evt_1', 'shop-' || to_char(number, 'FM000'), '\\x00ff', '2026-01-01Z',
           '2026-01-01Z'
    FROM generate_series(1, 250) AS number";

#[tokio::test]
async fn messages_of_many_sources_and_one_id_are_all_found() {
    let scene = Scene::new().await;
    scene.fixture.plain.batch_execute(CROWD).await.unwrap();
    let mut all: Vec<_> = pages(&scene, &MessageFilter::default(), 7).await;
    all.sort_by(|one, next| one.source.cmp(&next.source));
    all.dedup();
    assert_eq!(all.len(), 250);
    for source in ["shop-001", "shop-150", "shop-250"] {
        check(&scene, 1, |it| {
            (it.message_id, it.source) = (Some("evt_1".to_owned()), Some(source.to_owned()));
        })
        .await;
    }
}

#[tokio::test]
async fn messages_belong_to_no_tenant_and_an_actor_of_one_sees_none() {
    let scene = Scene::new().await;
    scene.fixture.plain.batch_execute(SOME).await.unwrap();
    let alice = Actor::new("alice").of(Tenant::new("alice").unwrap());
    let all = [
        MessageFilter::default(),
        MessageFilter {
            message_id: Some("m1".to_owned()),
            ..MessageFilter::default()
        },
    ];
    for asked in all {
        let seen = scene
            .store()
            .messages(&alice, &asked, None, 10)
            .await
            .unwrap();
        assert!(seen.items.is_empty() && seen.next.is_none(), "{seen:?}");
    }
    check(&scene, 1, |it| it.message_id = Some("m1".to_owned())).await;
}

async fn check(scene: &Scene, expected: usize, set: impl FnOnce(&mut MessageFilter)) {
    let mut filter = MessageFilter::default();
    set(&mut filter);
    let found = pages(scene, &filter, 2).await.len();
    assert_eq!(found, expected, "{filter:?}");
}

async fn pages(scene: &Scene, filter: &MessageFilter, limit: usize) -> Vec<Message> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = scene
            .store()
            .messages(&scene.ops, filter, before.as_deref(), limit)
            .await;
        let page = page.unwrap();
        all.extend(page.items);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}
