//! Deliveries listed, and dead letters replayed or discarded one at a time.

use hapax::{delivery::ParkedState, key::Tenant};
use hapax_postgres::operate::{
    Actor, Filter, OperateError, dead_letters,
    deliveries::{self, Delivery},
    events::Standing,
};

use super::scene::{Scene, park};

#[tokio::test]
async fn deliveries_are_listed_by_a_filter_in_pages() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 4).await;
    scene.emit("mail.sent", Some("b"), 4).await;
    let at = positions(&scene).await;
    for part in ["a/0", "a/1", "b"] {
        scene
            .settle(
                part,
                vec![
                    park(at[0], ParkedState::Dead, None),
                    park(at[1], ParkedState::Retrying, None),
                    park(at[4], ParkedState::Scheduled, None),
                ],
            )
            .await;
    }
    let all = Filter::default();
    assert_eq!(pages(&scene, &scene.ops, &all, None, &[]).await.len(), 9);
    assert_eq!(
        pages(&scene, &scene.ops, &all, Some("a"), &[]).await.len(),
        6
    );
    assert_eq!(
        pages(&scene, &scene.ops, &all, Some("b"), &[Standing::Dead])
            .await
            .len(),
        1
    );
    let parked = [Standing::Retrying, Standing::Scheduled];
    assert_eq!(
        pages(&scene, &scene.ops, &all, None, &parked).await.len(),
        6
    );
    let mail = Filter {
        kind: Some("mail.*".to_owned()),
        ..Filter::default()
    };
    assert_eq!(pages(&scene, &scene.ops, &mail, None, &[]).await.len(), 3);
    let tried = Filter {
        attempts_min: 4,
        ..Filter::default()
    };
    assert!(
        pages(&scene, &scene.ops, &tried, None, &[])
            .await
            .is_empty()
    );
    for (words, count) in [
        ("refused", 9),
        ("100%", 9),
        ("100_", 0),
        ("'; --", 0),
        ("\0", 0),
    ] {
        let filter = Filter {
            error: Some(words.to_owned()),
            ..Filter::default()
        };
        assert_eq!(
            pages(&scene, &scene.ops, &filter, None, &[]).await.len(),
            count,
            "{words}"
        );
    }
    let hers = Actor::new("bob").of(Tenant::new("b").unwrap());
    let mine = pages(&scene, &hers, &all, None, &[]).await;
    assert!(mine.len() == 3 && mine.iter().all(|it| it.tenant.as_deref() == Some("b")));
    let wrong = [Standing::Unread];
    let told = deliveries::list(scene.store(), &scene.ops, &all, None, &wrong, None, 1).await;
    assert!(
        matches!(told, Err(OperateError::Invalid { .. })),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_page_that_fits_nothing_still_leads_on() {
    let scene = Scene::new().await;
    scene.emit("rare", None, 1).await;
    scene.emit("order.created", None, 2_500).await;
    let at = positions(&scene).await;
    let parks = at
        .iter()
        .map(|position| park(*position, ParkedState::Retrying, None));
    scene.settle("a", parks.collect()).await;
    let filter = Filter {
        kind: Some("rare".to_owned()),
        ..Filter::default()
    };
    let first = deliveries::list(scene.store(), &scene.ops, &filter, None, &[], None, 5).await;
    let first = first.unwrap();
    assert!(first.items.is_empty() && first.next.is_some());
    assert_eq!(
        pages(&scene, &scene.ops, &filter, None, &[]).await[0].position,
        at[0]
    );
}

#[tokio::test]
async fn a_dead_letter_is_replayed_once_and_its_key_keeps_its_place() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 2).await;
    let at = positions(&scene).await;
    scene.pass("a", &[at[0]]).await;
    let (one, two) = tokio::join!(
        dead_letters::replay(scene.store(), &scene.ops, "a", at[0]),
        dead_letters::replay(scene.store(), &scene.ops, "a", at[0]),
    );
    let lost = if one.is_ok() { two } else { one };
    assert!(
        matches!(lost, Err(OperateError::Conflict { .. })),
        "{lost:?}"
    );
    let found = pages(&scene, &scene.ops, &Filter::default(), None, &[]).await;
    assert_eq!(
        (found[0].state.as_str(), found[0].attempts),
        ("retrying", 0)
    );
    assert_eq!(
        found[0].order_key.as_deref(),
        Some(&*format!("order\n{}", at[0]))
    );
    let refused = ("replay".to_owned(), "refused".to_owned());
    let done = ("replay".to_owned(), "done".to_owned());
    assert_eq!(scene.acts().await, [done, refused]);
    let unknown = dead_letters::replay(scene.store(), &scene.ops, "a", at[1]).await;
    assert!(
        matches!(unknown, Err(OperateError::NotFound { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_discarded_dead_letter_lets_its_key_go_and_says_why() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 2).await;
    let at = positions(&scene).await;
    let key = Some("order\n0".to_owned());
    scene
        .settle(
            "a",
            vec![
                park(at[0], ParkedState::Dead, key.clone()),
                park(at[1], ParkedState::Blocked, key),
            ],
        )
        .await;
    for reason in ["", "  ", &"x".repeat(1025)] {
        let told = dead_letters::discard(scene.store(), &scene.ops, "a", at[0], reason).await;
        assert!(
            matches!(told, Err(OperateError::Invalid { .. })),
            "{told:?}"
        );
    }
    let his = Actor::new("bob").of(Tenant::new("b").unwrap());
    let told = dead_letters::discard(scene.store(), &his, "a", at[0], "mine").await;
    assert!(
        matches!(told, Err(OperateError::NotFound { .. })),
        "{told:?}"
    );
    dead_letters::discard(scene.store(), &scene.ops, "a", at[0], "no such shop")
        .await
        .unwrap();
    let discarded = (at[0], "discarded".to_owned());
    assert_eq!(
        scene.states("a").await,
        [discarded, (at[1], "retrying".to_owned())]
    );
    let found = pages(&scene, &scene.ops, &Filter::default(), None, &[]).await;
    assert_eq!(found[1].reason.as_deref(), Some("no such shop"));
}

async fn positions(scene: &Scene) -> Vec<i64> {
    scene.events().await.iter().map(|it| it.position).collect()
}

async fn pages(
    scene: &Scene,
    actor: &Actor,
    filter: &Filter,
    destination: Option<&str>,
    states: &[Standing],
) -> Vec<Delivery> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = deliveries::list(
            scene.store(),
            actor,
            filter,
            destination,
            states,
            before.as_ref(),
            2,
        );
        let page = page.await.unwrap();
        all.extend(page.items);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}
