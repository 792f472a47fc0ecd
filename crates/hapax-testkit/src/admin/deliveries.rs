//! Conformance tests of the list of deliveries.

use hapax::{
    admin::{Delivery, DeliveryFilter, DeliveryStatus, EventFilter},
    delivery::{ParkedState, Settlement},
    event::NewEvent,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, hostile},
    scene::{HOUR, Scene, named, of, park},
};
use crate::store::steps::settlement;

/// Deliveries are listed by destination and state, the newest event first.
pub async fn deliveries_are_listed_by_destination_and_state<S: AdminUnderTest>() {
    let (scene, at) = parked_in_three_partitions::<S>().await;
    let all = list(&scene, |_| {}).await;
    assert_eq!(all.len(), 9);
    assert!(all.is_sorted_by(|one, next| one.position >= next.position));
    let destination = |name: &str| Some(name.to_owned());
    assert_eq!(
        count(&scene, |it| it.destination = destination("a")).await,
        6
    );
    assert_eq!(
        count(&scene, |it| it.destination = destination("b")).await,
        3
    );
    for unknown in ["", "a/0", "A", "c", "%"] {
        let found = count(&scene, |it| it.destination = destination(unknown)).await;
        assert_eq!(found, 0, "{unknown:?}");
    }
    let states = [
        (DeliveryStatus::Dead, at[0]),
        (DeliveryStatus::Retrying, at[1]),
        (DeliveryStatus::Scheduled, at[4]),
    ];
    for (state, position) in states {
        let found = list(&scene, |it| it.states = vec![state]).await;
        let fits = |it: &Delivery| it.position == position && it.state == state.as_str();
        assert!(found.len() == 3 && found.iter().all(fits), "{found:?}");
    }
    let parked = vec![DeliveryStatus::Retrying, DeliveryStatus::Scheduled];
    assert_eq!(count(&scene, |it| it.states.clone_from(&parked)).await, 6);
    let mixed = vec![DeliveryStatus::Dead, DeliveryStatus::Scheduled];
    assert_eq!(count(&scene, |it| it.states.clone_from(&mixed)).await, 6);
    assert_eq!(
        count(&scene, |it| it.states = DeliveryStatus::STORED.to_vec()).await,
        9
    );
}

/// Every field of the filter of events selects deliveries.
pub async fn every_field_of_the_event_filter_selects_deliveries<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("order.created", Some("a"), 2).await;
    scene.advance(HOUR).await;
    let late = scene.now();
    let cart = NewEvent::json("cart.filled", &1).about("cart", "7");
    at.extend(scene.write(Some("b"), vec![cart]).await);
    let parks = at.iter().map(|it| park(*it, ParkedState::Retrying, None));
    let mut parks: Vec<_> = parks.collect();
    parks[1].attempt = 9;
    scene.settle("hook", parks).await;
    let id = scene.fixture.events().await[0].event.id;
    let events = async |expected: usize, set: &dyn Fn(&mut EventFilter)| {
        let found = list(&scene, |it| set(&mut it.events)).await;
        assert_eq!(found.len(), expected, "{found:?}");
    };
    events(2, &|it| it.kind = Some("order.*".to_owned())).await;
    events(1, &|it| it.tenant = Some(named("b"))).await;
    events(1, &|it| it.aggregate_type = Some("cart".to_owned())).await;
    events(1, &|it| it.aggregate_id = Some("7".to_owned())).await;
    events(1, &|it| it.event_id = Some(id)).await;
    events(1, &|it| it.since = Some(late)).await;
    events(2, &|it| it.until = Some(late)).await;
    events(3, &|it| it.attempts_min = 3).await;
    events(1, &|it| it.attempts_min = 4).await;
    events(0, &|it| it.attempts_min = u32::MAX).await;
    events(1, &|it| {
        (it.attempts_min, it.tenant) = (4, Some(named("a")));
    })
    .await;
    events(0, &|it| {
        (it.attempts_min, it.tenant) = (4, Some(named("b")));
    })
    .await;
}

/// A part of an error is found in any case, and is not a pattern.
pub async fn a_part_of_the_last_error_selects_deliveries<S: AdminUnderTest>() {
    let (scene, at) = parked_in_three_partitions::<S>().await;
    let host = format!("host_{}", at[0]);
    for (words, expected) in [
        ("refused", 9),
        ("CONNECTION refused by", 9),
        ("100%", 9),
        ("100_", 0),
        ("connection%of", 0),
        ("*", 0),
        (host.as_str(), 3),
        ("'; --", 0),
    ] {
        let found = list(&scene, |it| it.events.error = Some(words.to_owned())).await;
        assert_eq!(found.len(), expected, "{words}");
    }
}

/// A list item has the fields of the delivery and of its event.
pub async fn a_listed_delivery_has_its_own_fields_and_those_of_its_event<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", Some("a"), 2).await;
    let created_at = scene.now();
    scene.advance(HOUR).await;
    let parked = park(at[1], ParkedState::Retrying, Some("order\n1"));
    scene.settle("hook/1", vec![parked.clone()]).await;
    let [found] = list(&scene, |_| {}).await.try_into().must();
    assert_eq!(found.destination, "hook");
    assert_eq!(
        (found.partition.as_str(), found.position),
        ("hook/1", at[1])
    );
    assert_eq!((found.state.as_str(), found.attempts), ("retrying", 3));
    assert_eq!(found.next_at, parked.next_at);
    assert_eq!(found.order_key.as_deref(), Some("order\n1"));
    assert_eq!(found.changed_at, scene.now());
    assert_eq!((found.last_error, found.reason), (parked.last_error, None));
    let event = &scene.fixture.events().await[1].event;
    assert_eq!(found.event_id, event.id.to_string());
    assert_eq!(
        (found.kind, found.tenant),
        (event.kind.clone(), Some("a".to_owned()))
    );
    assert_eq!(found.aggregate_type.as_deref(), Some("order"));
    assert_eq!(found.aggregate_id.as_deref(), Some("1"));
    assert_eq!(found.created_at, created_at);
}

/// A delivery that was parked and then succeeded is listed as delivered.
pub async fn a_parked_delivery_that_succeeded_is_listed_as_delivered<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2).await;
    scene
        .settle("a", vec![park(at[0], ParkedState::Retrying, None)])
        .await;
    let epoch = scene.fixture.open("a").await.epoch;
    let settled = Settlement {
        delivered: vec![at[0]],
        ..settlement("a", epoch)
    };
    scene.fixture.settle(settled).await;
    let delivered = list(&scene, |it| it.states = vec![DeliveryStatus::Delivered]).await;
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].position, at[0]);
    assert_eq!(
        count(&scene, |it| it.states = vec![DeliveryStatus::Dead]).await,
        0
    );
}

/// A state in which deliveries have no row is not a valid filter.
pub async fn a_state_without_rows_is_not_a_filter_of_deliveries<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for state in [DeliveryStatus::Unread, DeliveryStatus::Passed] {
        for states in [vec![state], vec![DeliveryStatus::Dead, state]] {
            let filter = DeliveryFilter {
                states,
                ..DeliveryFilter::default()
            };
            let listed = scene.admin.deliveries(&scene.ops, &filter, None, 1).await;
            check_invalid(&listed, "state");
        }
    }
}

/// A value of a filter is never interpreted.
pub async fn a_hostile_filter_of_deliveries_finds_nothing<S: AdminUnderTest>() {
    let (scene, _) = parked_in_three_partitions::<S>().await;
    for word in hostile() {
        let word = Some(word);
        assert_eq!(
            count(&scene, |it| it.destination.clone_from(&word)).await,
            0
        );
        assert_eq!(
            count(&scene, |it| it.events.kind.clone_from(&word)).await,
            0
        );
        assert_eq!(
            count(&scene, |it| it.events.error.clone_from(&word)).await,
            0
        );
        let by_id = count(&scene, |it| it.events.aggregate_id.clone_from(&word)).await;
        assert_eq!(by_id, 0, "{word:?}");
    }
    assert_eq!(count(&scene, |_| {}).await, 9);
}

/// An operator of a tenant sees the deliveries of that tenant's events at every destination.
pub async fn an_operator_of_a_tenant_sees_deliveries_of_its_own_events<S: AdminUnderTest>() {
    let (scene, _) = parked_in_three_partitions::<S>().await;
    let mut filter = DeliveryFilter::default();
    let mine = scene.deliveries(&of("b"), &filter).await;
    let is_own = |it: &Delivery| it.tenant.as_deref() == Some("b");
    assert!(mine.len() == 3 && mine.iter().all(is_own), "{mine:?}");
    filter.events.tenant = Some(named("b"));
    assert_eq!(scene.deliveries(&of("b"), &filter).await.len(), 3);
    assert!(scene.deliveries(&of("a"), &filter).await.is_empty());
    assert!(
        scene
            .deliveries(&of("c"), &DeliveryFilter::default())
            .await
            .is_empty()
    );
}

/// A list by a rare type leads to its only delivery, however many others are newer.
pub async fn a_rare_delivery_is_found_behind_many_others<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("rare", None, 1).await;
    at.extend(scene.emit("order.created", None, 2_500).await);
    let parks = at.iter().map(|it| park(*it, ParkedState::Retrying, None));
    scene.settle("a", parks.collect()).await;
    let rare = list(&scene, |it| it.events.kind = Some("rare".to_owned())).await;
    assert_eq!(rare.len(), 1);
    assert_eq!(rare[0].position, at[0]);
    assert_eq!(
        count(&scene, |it| it.states = vec![DeliveryStatus::Dead]).await,
        0
    );
}

/// Events of two tenants. Three partitions have parked three of them each: one dead, one retrying,
/// one scheduled, which is of the second tenant.
async fn parked_in_three_partitions<S: AdminUnderTest>() -> (Scene<S>, Vec<i64>) {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("order.created", Some("a"), 4).await;
    at.extend(scene.emit("mail.sent", Some("b"), 4).await);
    for partition in ["a/0", "a/1", "b"] {
        let parks = vec![
            park(at[0], ParkedState::Dead, None),
            park(at[1], ParkedState::Retrying, None),
            park(at[4], ParkedState::Scheduled, None),
        ];
        scene.settle(partition, parks).await;
    }
    (scene, at)
}

async fn list<S: AdminUnderTest>(
    scene: &Scene<S>,
    set: impl FnOnce(&mut DeliveryFilter),
) -> Vec<Delivery> {
    let mut filter = DeliveryFilter::default();
    set(&mut filter);
    scene.deliveries(&scene.ops, &filter).await
}

async fn count<S: AdminUnderTest>(
    scene: &Scene<S>,
    set: impl FnOnce(&mut DeliveryFilter),
) -> usize {
    list(scene, set).await.len()
}
