//! Conformance tests of operations on one dead letter: replay, edit, discard, and the count.

use hapax::{
    admin::{DeliveryFilter, EventFilter, REASON_BYTES_MAX},
    delivery::ParkedState,
    event::{NewEvent, Payload},
    store::{DeadLetters, Settlements},
};

use super::{
    AdminUnderTest,
    checks::{
        HOSTILE, Must, check_conflict, check_invalid, check_missing, check_one_done, hostile, long,
    },
    scene::{HOUR, Scene, line, named, of, park},
};

/// A replayed dead letter is due as if it had never been tried, keeps its order key, and is not
/// replayed twice.
pub async fn a_replayed_dead_letter_is_due_as_if_never_tried<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2).await;
    scene.pass("a", &at[..1]).await;
    scene.advance(HOUR).await;
    let replay = async |position| {
        let replayed = scene.admin.replay_dead_letter(&scene.ops, "a", position);
        replayed.await
    };
    replay(at[0]).await.must();
    let found = scene
        .deliveries(&scene.ops, &DeliveryFilter::default())
        .await;
    assert_eq!(
        (found[0].state.as_str(), found[0].attempts),
        ("retrying", 0)
    );
    assert_eq!(found[0].changed_at, scene.now());
    let key = format!("order\n{}", at[0]);
    assert_eq!(found[0].order_key, Some(key));
    let due = scene.store().due("a", &[], 10, 0).await.must();
    assert_eq!(due.len(), 1);
    assert!(due[0].manual, "an operator asked for this delivery");
    check_conflict(&replay(at[0]).await);
    check_missing(&replay(at[1]).await);
    assert_eq!(
        scene.acts().await,
        [line("replay", "done"), line("replay", "refused")]
    );
}

/// A delivery that waits for its next attempt is due at once, and keeps its attempts. Only such a
/// delivery can be retried now.
pub async fn a_delivery_that_waits_is_retried_now<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", Some("a"), 4).await;
    let key = Some("order\n1");
    let mut parks = vec![
        park(at[0], ParkedState::Retrying, None),
        park(at[1], ParkedState::Dead, key),
        park(at[2], ParkedState::Blocked, key),
    ];
    parks[0].next_at = scene.now().after(HOUR);
    scene.settle("a", parks).await;
    let retry = async |position| {
        let retried = scene.admin.retry_delivery_now(&scene.ops, "a", position);
        retried.await
    };
    let theirs = of("b");
    let hidden = scene.admin.retry_delivery_now(&theirs, "a", at[0]).await;
    check_missing(&hidden);
    check_missing(&retry(at[3]).await);
    check_conflict(&retry(at[1]).await);
    check_conflict(&retry(at[2]).await);
    let due = async || scene.store().due("a", &[], 10, 0).await.must();
    assert!(due().await.is_empty());
    retry(at[0]).await.must();
    let first = due().await;
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].event.position, first[0].attempt), (at[0], 3));
    assert!(first[0].manual, "an operator asked for this delivery");
    // A delivery that is due is not delayed.
    retry(at[0]).await.must();
    assert_eq!(due().await[0].next_at, first[0].next_at);
    let expected = ["refused", "refused", "done", "done"].map(|outcome| line("retry", outcome));
    assert_eq!(scene.acts().await, expected);
}

/// A discarded dead letter releases the deliveries that it blocked, and keeps the reason.
pub async fn a_discarded_dead_letter_releases_its_order_key<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    let key = Some("order\n0");
    let parks = vec![
        park(at[0], ParkedState::Dead, key),
        park(at[1], ParkedState::Blocked, key),
        park(at[2], ParkedState::Blocked, key),
    ];
    scene.settle("a", parks).await;
    let discard = scene
        .admin
        .discard_dead_letter(&scene.ops, "a", at[0], "no such shop");
    discard.await.must();
    let expected = [
        (at[0], "discarded".to_owned()),
        (at[1], "retrying".to_owned()),
        (at[2], "blocked".to_owned()),
    ];
    assert_eq!(scene.states("a").await, expected);
    assert_eq!(scene.fixture.due_positions("a").await, [at[1]]);
    let found = scene
        .deliveries(&scene.ops, &DeliveryFilter::default())
        .await;
    assert_eq!(found[2].reason.as_deref(), Some("no such shop"));
    let [line] = scene.log().await.try_into().must();
    assert_eq!(
        (line.action.as_str(), line.outcome.as_str()),
        ("discard", "done")
    );
    assert_eq!(line.detail["reason"], "no such shop");
    assert_eq!(line.object, format!("delivery a {}", at[0]));
}

/// A reason has 1 to [`REASON_BYTES_MAX`] bytes, and more than white space.
pub async fn a_dead_letter_is_discarded_only_with_a_reason<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let discard = async |reason: &str| {
        let discarded = scene
            .admin
            .discard_dead_letter(&scene.ops, "a", at[0], reason);
        discarded.await
    };
    let over = "x".repeat(REASON_BYTES_MAX + 1);
    // Its length is counted in bytes.
    let wide = "é".repeat(REASON_BYTES_MAX / 2 + 1);
    for reason in ["", "  ", "\n\t", &over, &wide, &long()] {
        check_invalid(&discard(reason).await, "reason");
    }
    assert_eq!(scene.positions_in("a", "dead").await, at);
    assert!(scene.acts().await.is_empty());
    discard(&over[1..]).await.must();
    let [line] = scene.log().await.try_into().must();
    assert_eq!(line.detail["reason"], over[1..]);
}

/// A reason may contain any text.
pub async fn a_hostile_reason_is_stored<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, HOSTILE.len()).await;
    scene.pass("a", &at).await;
    for (position, word) in at.iter().zip(HOSTILE) {
        let (admin, reason) = (&scene.admin, format!("why {word}"));
        let discarded = admin.discard_dead_letter(&scene.ops, "a", *position, &reason);
        discarded.await.must();
        let trace = scene.admin.trace(*position).await.must();
        let kept = trace[0].reason.as_deref().expect("there is a reason");
        // A database may not be able to store a NUL.
        let fits = kept == reason || word.contains('\0');
        assert!(fits && kept.starts_with("why "), "{kept:?}");
    }
    let log = scene.log().await;
    assert!(log.iter().all(|line| line.outcome == "done"), "{log:?}");
    assert_eq!(log[0].detail["reason"], format!("why {}", HOSTILE[0]));
}

/// Only a delivery that is dead can be replayed, edited or discarded.
pub async fn only_a_dead_letter_is_replayed_edited_or_discarded<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 5).await;
    let key = Some("order\n0");
    let parks = vec![
        park(at[0], ParkedState::Retrying, key),
        park(at[1], ParkedState::Blocked, key),
        park(at[2], ParkedState::Scheduled, None),
        park(at[3], ParkedState::Dead, None),
    ];
    scene.settle("a", parks).await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let discarded = admin.discard_dead_letter(ops, "a", at[3], "why");
    discarded.await.must();
    let before = scene.states("a").await;
    for position in &at[..4] {
        check_conflict(&admin.replay_dead_letter(ops, "a", *position).await);
        check_conflict(&admin.edit_dead_letter(ops, "a", *position, "{}").await);
        check_conflict(&admin.discard_dead_letter(ops, "a", *position, "why").await);
    }
    for position in [at[4], i64::MIN, -1, 0, i64::MAX] {
        check_missing(&admin.replay_dead_letter(ops, "a", position).await);
        check_missing(&admin.edit_dead_letter(ops, "a", position, "{}").await);
        check_missing(&admin.discard_dead_letter(ops, "a", position, "why").await);
    }
    assert_eq!(scene.states("a").await, before);
}

/// The name of a partition is a value.
pub async fn a_hostile_partition_has_no_dead_letters<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let (admin, ops, all) = (&scene.admin, &scene.ops, EventFilter::default());
    for name in hostile() {
        check_missing(&admin.replay_dead_letter(ops, &name, at[0]).await);
        check_missing(&admin.edit_dead_letter(ops, &name, at[0], "{}").await);
        check_missing(&admin.discard_dead_letter(ops, &name, at[0], "why").await);
        assert_eq!(scene.count_dead(ops, &name, &all).await, 0);
    }
    assert_eq!(scene.count_dead(ops, "a", &all).await, 1);
}

/// An edited payload is offered by its destination alone, and the next edit starts from it.
pub async fn an_edited_payload_is_offered_by_its_destination_alone<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = addressed(&scene).await;
    for partition in ["a", "b"] {
        scene.pass(partition, &[at]).await;
    }
    let (admin, ops) = (&scene.admin, &scene.ops);
    let patch = r#"{"to":"right","card":null}"#;
    admin.edit_dead_letter(ops, "a", at, patch).await.must();
    admin.replay_dead_letter(ops, "b", at).await.must();
    assert_eq!(due(&scene, "a").await, [r#"{"amount":12.50,"to":"right"}"#]);
    assert_eq!(due(&scene, "b").await, [ADDRESSED]);
    let event = admin.event_at(ops, at).await.must().expect("it exists");
    assert_eq!(event.event.payload.bytes(), ADDRESSED.as_bytes());
    let mut traces = admin.trace(at).await.must();
    traces.sort_by(|one, next| one.partition.cmp(&next.partition));
    let edited = traces[0].edited.as_ref().map(Payload::bytes);
    assert_eq!(edited, Some(&br#"{"amount":12.50,"to":"right"}"#[..]));
    assert_eq!(traces[1].edited, None);
    scene.pass("a", &[at]).await;
    let letters = scene.store().dead_letters("a", 0, 10).await.must();
    let offered = letters[0].event.event.payload.bytes();
    assert_eq!(offered, br#"{"amount":12.50,"to":"right"}"#);
    let more = r#"{"cc":["x"]}"#;
    admin.edit_dead_letter(ops, "a", at, more).await.must();
    let both = r#"{"amount":12.50,"cc":["x"],"to":"right"}"#;
    assert_eq!(due(&scene, "a").await, [both]);
    // The log names the members, but no values.
    let edits = scene.log().await.into_iter();
    let edits: Vec<_> = edits.filter(|line| line.action == "edit").collect();
    assert_eq!(edits.len(), 2);
    for (edit, member) in edits.iter().zip(["card", "cc"]) {
        let said = edit.detail.to_string();
        assert!(said.contains(member), "{said}");
        assert!(!said.contains("right") && !said.contains("\"x\""), "{said}");
        assert_eq!(edit.object, format!("delivery a {at}"));
    }
}

/// A patch that cannot be applied changes nothing, and the dead letter stays dead.
pub async fn an_edit_that_cannot_be_made_changes_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = addressed(&scene).await;
    let image = Payload::Binary {
        content_type: "image/png".to_owned(),
        bytes: vec![1, 2, 3].into(),
    };
    let image = NewEvent::new("file.scanned", image);
    let image = scene.write(Some("a"), vec![image]).await[0];
    scene.pass("a", &[at, image]).await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let large = format!(r#"{{"to":"{}"}}"#, "x".repeat(1024 * 1024));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    for patch in [
        "",
        "[]",
        "null",
        "7",
        r#""right""#,
        "{",
        "{\0}",
        "{} {}",
        &large,
        &deep,
    ] {
        let edited = admin.edit_dead_letter(ops, "a", at, patch).await;
        check_invalid(&edited, "patch");
    }
    let right = r#"{"to":"right"}"#;
    check_conflict(&admin.edit_dead_letter(ops, "a", image, right).await);
    assert_eq!(scene.positions_in("a", "dead").await, [at, image]);
    admin.replay_dead_letter(ops, "a", at).await.must();
    check_conflict(&admin.edit_dead_letter(ops, "a", at, right).await);
    assert_eq!(due(&scene, "a").await, [ADDRESSED]);
}

/// Of operators who act on one dead letter at the same time, in two processes, one succeeds.
pub async fn of_operations_on_one_dead_letter_at_once_one_is_done<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (one, two) = (&scene.admin, &scene.beside().await);
    let ops = &scene.ops;
    for _ in 0..5 {
        let at = scene.emit("order.created", None, 1).await[0];
        scene.pass("a", &[at]).await;
        let before = scene.log().await.len();
        let (replayed, discarded, edited, again) = tokio::join!(
            one.replay_dead_letter(ops, "a", at),
            two.discard_dead_letter(ops, "a", at, "why"),
            two.edit_dead_letter(ops, "a", at, "{}"),
            one.replay_dead_letter(ops, "a", at),
        );
        let done = check_one_done(&[replayed, discarded, edited, again]);
        let expected = if done == 1 { "discarded" } else { "retrying" };
        assert!(scene.positions_in("a", expected).await.contains(&at));
        let lines = scene.log().await.split_off(before);
        assert_eq!(lines.iter().filter(|it| it.outcome == "done").count(), 1);
        assert_eq!(lines.len(), 4, "{lines:?}");
    }
}

/// Dead letters are counted by every field of the filter.
pub async fn dead_letters_are_counted_by_every_field_of_the_filter<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("order.created", Some("a"), 2).await;
    scene.advance(HOUR).await;
    let late = scene.now();
    let cart = NewEvent::json("cart.filled", &1).about("cart", "7");
    at.extend(scene.write(Some("b"), vec![cart]).await);
    let parks = at.iter().map(|it| park(*it, ParkedState::Dead, None));
    let mut parks: Vec<_> = parks.collect();
    parks[1].attempt = 9;
    for partition in ["hook/0", "hook/1", "other"] {
        scene.settle(partition, parks.clone()).await;
    }
    let id = scene.fixture.events().await[0].event.id;
    let count = async |expected: u64, set: &dyn Fn(&mut EventFilter)| {
        let mut filter = EventFilter::default();
        set(&mut filter);
        let counted = scene.count_dead(&scene.ops, "hook", &filter).await;
        assert_eq!(counted, expected, "{filter:?}");
    };
    count(6, &|_| {}).await;
    count(4, &|it| it.kind = Some("order.*".to_owned())).await;
    count(2, &|it| it.tenant = Some(named("b"))).await;
    count(2, &|it| it.aggregate_type = Some("cart".to_owned())).await;
    count(2, &|it| it.aggregate_id = Some("7".to_owned())).await;
    count(2, &|it| it.event_id = Some(id)).await;
    count(2, &|it| it.since = Some(late)).await;
    count(4, &|it| it.until = Some(late)).await;
    count(2, &|it| it.attempts_min = 4).await;
    count(6, &|it| it.error = Some("REFUSED".to_owned())).await;
    count(2, &|it| it.error = Some(format!("host_{}", at[1]))).await;
    count(0, &|it| it.error = Some("_".repeat(64 * 1024))).await;
    let all = EventFilter::default();
    assert_eq!(scene.count_dead(&of("b"), "hook", &all).await, 2);
    let others = EventFilter {
        tenant: Some(named("a")),
        ..EventFilter::default()
    };
    assert_eq!(scene.count_dead(&of("b"), "hook", &others).await, 0);
    assert_eq!(scene.count_dead(&scene.ops, "nowhere", &all).await, 0);
}

/// Text that is not a snapshot is rejected.
pub async fn what_is_not_a_snapshot_is_rejected<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let all = EventFilter::default();
    let mut words = hostile();
    words.push(String::new());
    for word in words {
        let counted = scene
            .admin
            .count_dead_letters(&scene.ops, "a", &all, &word)
            .await;
        check_invalid(&counted, "seen");
    }
}

/// An operator of a tenant sees and changes the dead letters of that tenant's events.
pub async fn an_operator_of_a_tenant_changes_its_own_dead_letters<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let own = scene.emit("order.created", Some("a"), 3).await;
    let mut others = scene.emit("order.created", Some("b"), 1).await;
    others.extend(scene.emit("order.created", None, 1).await);
    let all = [own.clone(), others.clone()].concat();
    scene.pass("hook", &all).await;
    let (admin, alice) = (&scene.admin, &of("a"));
    for position in &others {
        check_missing(&admin.replay_dead_letter(alice, "hook", *position).await);
        let edited = admin.edit_dead_letter(alice, "hook", *position, "{}");
        check_missing(&edited.await);
        let discarded = admin.discard_dead_letter(alice, "hook", *position, "why");
        check_missing(&discarded.await);
    }
    assert_eq!(scene.positions_in("hook", "dead").await, all);
    admin.replay_dead_letter(alice, "hook", own[0]).await.must();
    let edited = admin.edit_dead_letter(alice, "hook", own[1], "{}");
    edited.await.must();
    let discarded = admin.discard_dead_letter(alice, "hook", own[2], "why");
    discarded.await.must();
    assert_eq!(scene.positions_in("hook", "dead").await, others);
}

const ADDRESSED: &str = r#"{"to":"wrong","card":"4242","amount":12.50}"#;

/// Emits an event with an address in its payload; returns its position.
async fn addressed<S: AdminUnderTest>(scene: &Scene<S>) -> i64 {
    let payload = Payload::Json(ADDRESSED.to_owned());
    let event = NewEvent::new("mail.asked", payload);
    scene.write(Some("a"), vec![event]).await[0]
}

/// The payloads that are due at a partition.
async fn due<S: AdminUnderTest>(scene: &Scene<S>, partition: &str) -> Vec<String> {
    let due = scene.fixture.due(partition).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    due.iter()
        .map(|it| text(it.event.event.payload.bytes()))
        .collect()
}
