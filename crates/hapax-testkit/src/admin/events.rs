//! Conformance tests of events: lists by a filter, counts, and single events.

use hapax::{
    Timestamp,
    admin::{Actor, EventFilter, TryEndpoint, try_endpoint, try_filter},
    event::{EventId, NewEvent, Payload},
    filter::Filter,
    mask::Mask,
};
use serde_json::json;

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, check_missing, hostile, pages, short},
    scene::{HOUR, Scene, named, of},
};

/// The list contains every event once, the newest first, however long its pages are.
pub async fn events_are_listed_in_pages_the_newest_first<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut all = scene.emit("order.created", Some("a"), 5).await;
    scene.advance(HOUR).await;
    all.extend(scene.emit("mail.sent", None, 3).await);
    all.reverse();
    for limit in [1, 3, 8, 100] {
        assert_eq!(listed(&scene, &EventFilter::default(), limit).await, all);
    }
}

/// Every field of the filter selects events, in the list and in the count.
pub async fn every_field_of_the_filter_selects_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", Some("a"), 5).await;
    let early = scene.now();
    scene.advance(HOUR).await;
    scene.emit("order_created", Some("b"), 2).await;
    let cart = NewEvent::json("cart.filled", &1).about("cart", "0");
    scene.write(None, vec![cart]).await;
    let late = scene.now();
    let id = scene.fixture.events().await[6].event.id;
    check(&scene, 8, |_| {}).await;
    check(&scene, 5, |it| it.kind = Some("order.created".to_owned())).await;
    check(&scene, 5, |it| it.tenant = Some(named("a"))).await;
    check(&scene, 0, |it| it.tenant = Some(named("A"))).await;
    check(&scene, 7, |it| it.aggregate_type = Some("order".to_owned())).await;
    check(&scene, 0, |it| it.aggregate_type = Some("orde".to_owned())).await;
    check(&scene, 3, |it| it.aggregate_id = Some("0".to_owned())).await;
    check(&scene, 1, |it| it.event_id = Some(id)).await;
    // A time is included in `since` and not in `until`.
    check(&scene, 3, |it| it.since = Some(late)).await;
    check(&scene, 8, |it| it.since = Some(early)).await;
    check(&scene, 5, |it| it.until = Some(late)).await;
    check(&scene, 0, |it| it.until = Some(early)).await;
    check(&scene, 2, |it| {
        (it.since, it.kind) = (Some(late), Some("order*".to_owned()));
    })
    .await;
    check(&scene, 0, |it| {
        (it.event_id, it.tenant) = (Some(id), Some(named("a")));
    })
    .await;
}

/// A filter on the content is tried on the newest events first, and the trial can be continued.
pub async fn a_filter_is_tried_on_the_newest_events_first<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let events = (0..5).map(|number| NewEvent::json("order.paid", &json!({"n": number})));
    let at = scene.write(Some("a"), events.collect()).await;
    let text = Payload::Binary {
        content_type: "text/plain".to_owned(),
        bytes: "5".into(),
    };
    let text = scene.write(Some("b"), vec![NewEvent::new("order.paid", text)]);
    let newest = text.await[0];
    let filter = Filter::parse(r#"{"/n": {"$gte": 3}}"#).expect("the filter is valid");
    let all = EventFilter::default();
    let tried = async |actor: &Actor, before: Option<&str>, limit: usize| {
        let tried = try_filter(&*scene.admin, actor, &filter, &all, before, limit, None);
        tried.await.must()
    };
    let first = tried(&scene.ops, None, 4).await;
    let items = first.items.iter();
    let items: Vec<_> = items
        .map(|it| (it.position, it.matches, it.fails_at.as_deref()))
        .collect();
    let expected = [
        (newest, false, None),
        (at[4], true, None),
        (at[3], true, None),
        (at[2], false, Some("/n.$gte")),
    ];
    assert_eq!(items, expected);
    assert_eq!((first.tried, first.matched, first.unreadable), (4, 2, 1));
    let rest = tried(&scene.ops, first.next.as_deref(), 100).await;
    assert_eq!((rest.tried, rest.matched, rest.next), (2, 0, None));
    let own = tried(&of("b"), None, 100).await;
    assert_eq!((own.tried, own.unreadable), (1, 1));
}

/// The settings of an endpoint are tried on the newest events of its tenant: why an event does not match, what
/// the mapping makes of it, masked, and why that fails. The trial can be continued.
pub async fn the_settings_of_an_endpoint_are_tried_on_events_of_its_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let order = |payload| NewEvent::json("order.paid", &payload);
    let events = vec![
        NewEvent::json("mail.sent", &json!({"n": 9})),
        order(json!({"n": 1, "lines": []})),
        order(json!({"n": 4, "lines": 7})),
        order(json!({"n": 5, "lines": [{"email": "ann@example.com"}]})),
    ];
    let at = scene.write(Some("a"), events).await;
    scene.write(Some("b"), vec![order(json!({"n": 6}))]).await;
    let mask = Mask::default();
    let types = ["order.*".to_owned()];
    let ask = TryEndpoint {
        tenant: "a",
        types: &types,
        filter: Some(r#"{"/n": {"$gte": 3}}"#),
        mapping: Some(r#"{"to": {"$each": "$.data.lines", "as": "@.email"}}"#),
        mask: &mask,
        before: None,
        limit: 3,
        place: None,
    };
    let tried = try_endpoint(&*scene.admin, &scene.ops, &ask).await.must();
    assert_eq!((tried.tried, tried.matched, tried.failed), (3, 2, 1));
    let [first, second, third] = &tried.items[..] else {
        panic!("three events are tried: {tried:?}");
    };
    let positions = [first.position, second.position, third.position];
    assert_eq!(positions, [at[3], at[2], at[1]]);
    let body = first.body.as_ref().map(|body| body.get());
    assert_eq!(body, Some(r#"{"to":["***"]}"#));
    let failure = second.failure.as_deref().unwrap_or_default();
    assert!(failure.contains("$.data.lines is not a list"), "{failure}");
    assert_eq!(third.fails_at.as_deref(), Some("/n.$gte"));
    let rest = TryEndpoint {
        before: tried.next.as_deref(),
        ..ask
    };
    let rest = try_endpoint(&*scene.admin, &of("a"), &rest).await.must();
    let places = rest.items.iter().map(|it| it.fails_at.as_deref());
    assert_eq!(places.collect::<Vec<_>>(), [Some("types")]);
    let other = try_endpoint(&*scene.admin, &of("b"), &ask).await;
    check_missing(&other);
    let wrong = TryEndpoint {
        mapping: Some("$"),
        ..ask
    };
    let wrong = try_endpoint(&*scene.admin, &scene.ops, &wrong).await;
    check_invalid(&wrong, "mapping");
    assert_eq!(scene.positions().await.len(), 5);
}

/// In a pattern of event types, a star matches any characters, and everything else, in any case,
/// matches itself.
pub async fn a_star_is_the_only_special_character_of_a_type_pattern<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for kind in ["order.created", "order_created", "Order.created", "a:b/c-d"] {
        scene.emit(kind, None, 1).await;
    }
    for (pattern, expected) in [
        ("*", 4),
        ("**", 4),
        ("order.*", 1),
        ("order_*", 1),
        ("Order.*", 1),
        ("*.created", 2),
        ("*created", 3),
        ("*der*at*", 3),
        ("order.created*", 1),
        ("order", 0),
        ("a:b/c-d", 1),
        ("%", 0),
        ("order%", 0),
        ("order?created", 0),
        ("order[._]created", 0),
        ("[a-z]*", 0),
        ("\\*", 0),
        ("", 0),
    ] {
        check(&scene, expected, |it| it.kind = Some(pattern.to_owned())).await;
    }
    let stars = "*".repeat(64 * 1024);
    check(&scene, 4, |it| it.kind = Some(stars.clone())).await;
}

/// The fields that concern deliveries do not select events.
pub async fn attempts_and_errors_do_not_select_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 2).await;
    check(&scene, 2, |it| it.attempts_min = 7).await;
    check(&scene, 2, |it| it.error = Some("refused".to_owned())).await;
}

/// A filter with a position selects the events after it, together with any other field, and no page
/// reaches back further.
pub async fn only_events_after_a_position_are_listed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let rare = scene.emit("rare", Some("a"), 1).await;
    scene.emit("order.created", None, 30).await;
    let at: Vec<i64> = scene
        .fixture
        .events()
        .await
        .iter()
        .map(|it| it.position)
        .collect();
    let id = scene.fixture.events().await[0].event.id;
    check(&scene, 31, |it| it.after = Some(i64::MIN)).await;
    check(&scene, 30, |it| it.after = Some(rare[0])).await;
    check(&scene, 10, |it| it.after = Some(at[20])).await;
    check(&scene, 0, |it| it.after = Some(at[30])).await;
    check(&scene, 0, |it| it.after = Some(i64::MAX)).await;
    for (after, expected) in [(rare[0] - 1, 1), (rare[0], 0)] {
        check(&scene, expected, |it| {
            (it.after, it.kind) = (Some(after), Some("rare".to_owned()));
        })
        .await;
        check(&scene, expected, |it| {
            (it.after, it.event_id) = (Some(after), Some(id));
        })
        .await;
        check(&scene, expected, |it| {
            (it.after, it.until) = (Some(after), Some(Timestamp::from_millis(i64::MAX)));
            it.tenant = Some(named("a"));
        })
        .await;
    }
    let mut filter = EventFilter {
        after: Some(at[20]),
        ..EventFilter::default()
    };
    let estimate = scene.admin.estimate_events(&scene.ops, &filter).await;
    assert_eq!(estimate.must().number, 10);
    // The cursor of a list without the position is one of a list with it.
    let newest = EventFilter::default();
    let page = scene
        .admin
        .events(&scene.ops, &newest, None, 8)
        .await
        .must();
    let before = page.next.as_deref();
    let page = scene.admin.events(&scene.ops, &filter, before, 8).await;
    let page = page.must();
    assert_eq!((page.items.len(), page.next), (2, None));
    filter.after = Some(at[25]);
    let page = scene.admin.events(&scene.ops, &filter, before, 8).await;
    let page = page.must();
    assert_eq!((page.items.len(), page.next), (0, None));
}

/// A value of a filter is never interpreted: neither as SQL, nor as the end of a text.
pub async fn a_hostile_filter_of_events_finds_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 2).await;
    for word in hostile() {
        let word = Some(word);
        check(&scene, 0, |it| it.kind.clone_from(&word)).await;
        check(&scene, 0, |it| it.aggregate_id.clone_from(&word)).await;
        check(&scene, 0, |it| it.aggregate_type.clone_from(&word)).await;
    }
    // Text after a NUL is part of the word.
    check(&scene, 0, |it| {
        it.kind = Some("order.created\0".to_owned());
    })
    .await;
    check(&scene, 2, |_| {}).await;
}

/// The first and the last time that can be expressed are valid times of a filter.
pub async fn the_most_extreme_times_are_valid_in_a_filter_of_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 2).await;
    let [first, last] = [i64::MIN, i64::MAX].map(Timestamp::from_millis);
    check(&scene, 2, |it| it.since = Some(first)).await;
    check(&scene, 0, |it| it.until = Some(first)).await;
    check(&scene, 0, |it| it.since = Some(last)).await;
    check(&scene, 2, |it| it.until = Some(last)).await;
}

/// A list item has the fields of its event.
pub async fn a_listed_event_has_the_fields_of_the_event<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let later = scene.now().after(HOUR);
    let event = NewEvent::json("order.created", &"content")
        .about("order", "it's \"7\"")
        .available_at(later);
    scene.write(Some("a"), vec![event]).await;
    scene.emit("mail.sent", None, 1).await;
    let emitted = &scene.fixture.events().await[0];
    let all = EventFilter::default();
    let page = scene.admin.events(&scene.ops, &all, None, 10).await.must();
    let item = &page.items[1];
    assert_eq!(item.position, emitted.position);
    assert_eq!(item.id, emitted.event.id.to_string());
    assert_eq!(item.kind, "order.created");
    assert_eq!(item.tenant.as_deref(), Some("a"));
    assert_eq!(item.aggregate_type.as_deref(), Some("order"));
    assert_eq!(item.aggregate_id.as_deref(), Some("it's \"7\""));
    assert_eq!(item.created_at, scene.now());
    assert_eq!(item.available_at, Some(later));
    // A payload that is encrypted is longer than the plain one.
    assert!(item.payload_bytes >= 9, "{item:?}");
    let plain = &page.items[0];
    assert_eq!((&plain.tenant, plain.available_at), (&None, None));
}

/// A single event is read whole: its payload byte for byte, and its headers.
pub async fn a_single_event_is_read_as_it_was_emitted<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let image = Payload::Binary {
        content_type: "image/png".to_owned(),
        bytes: vec![0, 159, 1, 0].into(),
    };
    let image = NewEvent::new("file.scanned", image).header("source", "scanner");
    let json = Payload::Json("{ \"amount\": 12.50 }".to_owned());
    let json = NewEvent::new("order.created", json).sequence(7);
    let positions = scene.write(Some("a"), vec![image, json]).await;
    for (event, position) in scene.fixture.events().await.iter().zip(positions) {
        let id = event.event.id;
        let (admin, ops) = (&scene.admin, &scene.ops);
        for found in [
            admin.find_event(ops, id).await.must(),
            admin.find_event_near(ops, id).await.must(),
            admin.event_at(ops, position).await.must(),
        ] {
            let found = found.expect("the event is found");
            assert_eq!((found.position, &found.event), (position, &event.event));
        }
    }
    for position in [i64::MIN, -1, 0, i64::MAX] {
        let found = scene.admin.event_at(&scene.ops, position).await.must();
        assert_eq!(found, None);
    }
}

/// An event is found by its id even if the clock that created the id was days off.
pub async fn an_event_is_found_by_its_id_even_if_its_clock_was_wrong<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let now = scene.now();
    for millis in [0, -3 * DAY_MS, 3 * DAY_MS, 0, 1] {
        let moment = Timestamp::from_millis(now.as_millis() + millis);
        scene.fixture.clock.set(moment);
        scene.emit("order.created", Some("a"), 4).await;
    }
    for event in scene.fixture.events().await {
        let found = scene.admin.find_event(&scene.ops, event.event.id).await;
        let found = found.must().expect("the event is found");
        assert_eq!(found.position, event.position);
        check(&scene, 1, |it| it.event_id = Some(event.event.id)).await;
    }
    let unknown: EventId = "01890000-0000-7000-8000-000000000000"
        .parse()
        .expect("a UUID");
    let found = scene.admin.find_event(&scene.ops, unknown).await.must();
    assert_eq!(found, None);
    let found = scene.admin.find_event_near(&scene.ops, unknown).await;
    assert_eq!(found.must(), None);
    check(&scene, 0, |it| it.event_id = Some(unknown)).await;
}

/// An operator of a tenant sees the events of that tenant, and can ask for no others.
pub async fn an_operator_of_a_tenant_sees_its_own_events<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let own = scene.emit("order.created", Some("a"), 3).await;
    let others = scene.emit("order.created", Some("b"), 2).await;
    scene.emit("order.created", None, 2).await;
    let alice = of("a");
    let list = async |actor: &Actor, filter: &EventFilter| {
        let found = pages(2, async |before: Option<String>| {
            let before = before.as_deref();
            scene.admin.events(actor, filter, before, 2).await
        })
        .await;
        let count = scene.admin.count_events(actor, filter).await.must();
        assert_eq!(count, found.len() as u64, "{filter:?}");
        let mut positions: Vec<i64> = found.iter().map(|it| it.position).collect();
        positions.sort_unstable();
        positions
    };
    assert_eq!(list(&alice, &EventFilter::default()).await, own);
    let events = scene.fixture.events().await;
    for event in &events {
        let (id, position) = (event.event.id, event.position);
        let is_own = own.contains(&position);
        let found = scene.admin.find_event(&alice, id).await.must();
        assert_eq!(found.is_some(), is_own);
        let near = scene.admin.find_event_near(&alice, id).await.must();
        assert_eq!(near.is_some(), is_own);
        let at = scene.admin.event_at(&alice, position).await.must();
        assert_eq!(at.is_some(), is_own);
        let by_id = EventFilter {
            event_id: Some(id),
            ..EventFilter::default()
        };
        assert_eq!(list(&alice, &by_id).await.len(), usize::from(is_own));
    }
    let of_b = EventFilter {
        tenant: Some(named("b")),
        ..EventFilter::default()
    };
    assert!(list(&alice, &of_b).await.is_empty());
    assert_eq!(list(&scene.ops, &of_b).await, others);
}

/// A list by a rare type leads to its only event, however many others are newer.
pub async fn a_rare_event_is_found_behind_many_others<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let rare = scene.emit("rare", Some("a"), 1).await;
    scene.emit("order.created", Some("b"), 3_000).await;
    let filter = EventFilter {
        kind: Some("rare".to_owned()),
        ..EventFilter::default()
    };
    assert_eq!(listed(&scene, &filter, 5).await, rare);
    let found = pages(5, async |before: Option<String>| {
        let before = before.as_deref();
        let all = EventFilter::default();
        scene.admin.events(&of("a"), &all, before, 5).await
    });
    assert_eq!(found.await.len(), 1);
}

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// The positions that a list returns, which must be in order.
async fn listed<S: AdminUnderTest>(
    scene: &Scene<S>,
    filter: &EventFilter,
    limit: usize,
) -> Vec<i64> {
    let all = pages(limit, async |before: Option<String>| {
        let before = before.as_deref();
        scene.admin.events(&scene.ops, filter, before, limit).await
    });
    let all: Vec<i64> = all.await.iter().map(|it| it.position).collect();
    assert!(all.is_sorted_by(|one, next| one > next), "{all:?}");
    all
}

async fn check<S: AdminUnderTest>(
    scene: &Scene<S>,
    expected: usize,
    set: impl FnOnce(&mut EventFilter),
) {
    let mut filter = EventFilter::default();
    set(&mut filter);
    let found = listed(scene, &filter, 2).await.len();
    let counted = scene.admin.count_events(&scene.ops, &filter).await.must();
    let both = (expected, expected as u64);
    assert_eq!((found, counted), both, "{}", short(&filter));
}
