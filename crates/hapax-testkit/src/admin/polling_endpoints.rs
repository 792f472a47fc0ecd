//! Conformance tests of polling endpoints: what operators do with them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use hapax::{
    admin::{AdminError, CountKind},
    delivery::Start,
    poll::{PollError, Token},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, hostile, pages},
    polling::{create, endpoint, polling},
    scene::{HOUR, Scene, line, of},
};

const DAY: Duration = Duration::from_hours(24);

/// After a rotation the old token is valid for the given time, and not at all without one.
pub async fn a_rotated_token_is_valid_for_its_overlap<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut tokens = vec![create(&scene, "acme", Some("acme"), Start::Now).await];
    tokens.push(rotate(&scene, "acme", 20, HOUR).await);
    assert_eq!(valid(&scene, &tokens).await, [true, true]);
    scene.advance(HOUR).await;
    assert_eq!(valid(&scene, &tokens).await, [false, true]);
    tokens.push(rotate(&scene, "acme", 21, Duration::ZERO).await);
    assert_eq!(valid(&scene, &tokens).await, [false, false, true]);
    let (admin, ops) = (&scene.admin, &scene.ops);
    let hash = tokens[0].hash();
    let too_long = admin.rotate_polling_token(ops, "acme", &hash, DAY * 31);
    check_invalid(&too_long.await, "overlap");
}

/// A rotation ends no earlier token: each is valid until its own overlap is over, in any order.
pub async fn a_rotation_ends_no_earlier_token<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let until = async || {
        let shown = scene.admin.polling_endpoint(&scene.ops, "acme").await;
        shown.must().old_token_until
    };
    let start = scene.now();
    let mut tokens = vec![create(&scene, "acme", Some("acme"), Start::Now).await];
    tokens.push(rotate(&scene, "acme", 20, DAY).await);
    tokens.push(rotate(&scene, "acme", 21, HOUR).await);
    assert_eq!(valid(&scene, &tokens).await, [true, true, true]);
    assert_eq!(until().await, Some(start.after(DAY)));
    scene.advance(HOUR).await;
    assert_eq!(valid(&scene, &tokens).await, [true, false, true]);
    tokens.push(rotate(&scene, "acme", 22, DAY * 2).await);
    assert_eq!(valid(&scene, &tokens).await, [true, false, true, true]);
    assert_eq!(until().await, Some(start.after(HOUR + DAY * 2)));
    scene.advance(DAY).await;
    assert_eq!(valid(&scene, &tokens).await, [false, false, true, true]);
}

/// A previous token opens its own endpoint alone, and none after that was removed.
pub async fn a_previous_token_belongs_to_its_endpoint<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut tokens = vec![create(&scene, "acme", Some("acme"), Start::Now).await];
    let mut others = vec![create(&scene, "other", Some("acme"), Start::Now).await];
    for number in [20, 21] {
        tokens.push(rotate(&scene, "acme", number, HOUR).await);
        others.push(rotate(&scene, "other", number + 10, HOUR).await);
    }
    let polling = polling(&scene);
    for token in &others {
        let token = token.reveal().as_bytes();
        polling.authenticate("other", token).await.must();
        assert!(polling.authenticate("acme", token).await.is_err());
    }
    let removed = scene.admin.remove_polling_endpoint(&scene.ops, "acme");
    removed.await.must();
    let created = create(&scene, "acme", Some("acme"), Start::Beginning);
    tokens.push(created.await);
    assert_eq!(valid(&scene, &tokens).await, [false, false, false, true]);
    // Nor does one return with the overlap of a later rotation.
    tokens.push(rotate(&scene, "acme", 22, DAY).await);
    let expected = [false, false, false, true, true];
    assert_eq!(valid(&scene, &tokens).await, expected);
}

/// Four previous tokens are valid at the same time. A rotation beyond that is refused with the first
/// end, until then; one without an overlap ends all of them.
pub async fn one_previous_token_too_many_is_refused<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let mut tokens = vec![create(&scene, "acme", Some("acme"), Start::Now).await];
    for hours in [2, 1, 4, 3] {
        let overlap = HOUR * u32::from(hours);
        tokens.push(rotate(&scene, "acme", hours, overlap).await);
    }
    let hash = Token::mint([5; 32]).hash();
    let refused = admin.rotate_polling_token(ops, "acme", &hash, HOUR).await;
    check_conflict(&refused);
    let first_end = scene.now().after(HOUR).to_string();
    let says_when = |error: &AdminError| error.to_string().contains(&first_end);
    assert!(refused.as_ref().is_err_and(says_when), "{refused:?}");
    assert!(scene.acts().await.contains(&line("rotate", "refused")));
    assert_eq!(valid(&scene, &tokens).await, [true; 5]);
    scene.advance(HOUR).await;
    tokens.push(rotate(&scene, "acme", 6, HOUR).await);
    let expected = [true, false, true, true, true, true];
    assert_eq!(valid(&scene, &tokens).await, expected);
    tokens.push(rotate(&scene, "acme", 7, Duration::ZERO).await);
    let mut expected = [false; 7];
    expected[6] = true;
    assert_eq!(valid(&scene, &tokens).await, expected);
    // Those that have ended do not count.
    for number in 8..=11 {
        rotate(&scene, "acme", number, HOUR).await;
    }
}

/// Of rotations at the same time, in two processes, four are done and the others are refused; the tokens
/// of those that were done are valid.
pub async fn rotations_at_the_same_time_lose_no_token<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let first = create(&scene, "acme", Some("acme"), Start::Now).await;
    let admins = [Arc::clone(&scene.admin), scene.beside().await];
    let ops = &scene.ops;
    let given: Vec<_> = (1..=6).map(|number| Token::mint([number; 32])).collect();
    let rotations = given.iter().zip(admins.iter().cycle());
    let rotations = rotations.map(|(token, admin)| async move {
        let hash = token.hash();
        admin.rotate_polling_token(ops, "acme", &hash, HOUR).await
    });
    let rotated = join_all(rotations).await;
    for refused in rotated.iter().filter(|it| it.is_err()) {
        check_conflict(refused);
    }
    let is_given: Vec<_> = rotated.iter().map(Result::is_ok).collect();
    let count = is_given.iter().filter(|it| **it).count();
    assert_eq!(count, 4, "{rotated:?}");
    assert_eq!(valid(&scene, &given).await, is_given);
    assert_eq!(valid(&scene, &[first]).await, [true]);
}

/// Operators create, list, show and remove endpoints, and each action is in the audit log.
pub async fn operators_create_list_and_remove_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for name in ["b", "a", "c"] {
        create(&scene, name, Some("acme"), Start::Now).await;
    }
    let all = pages(2, async |after: Option<String>| {
        admin.polling_endpoints(ops, after.as_deref(), 2).await
    });
    let names: Vec<_> = all.await.into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let (_, again) = endpoint("a", Some("acme"), Start::Now);
    check_conflict(&admin.create_polling_endpoint(ops, &again).await);
    let shown = admin.polling_endpoint(ops, "a").await.must();
    assert_eq!(
        (shown.tenant.as_deref(), shown.all_tenants),
        (Some("acme"), false)
    );
    assert_eq!(shown.types, ["*"]);
    assert_eq!(
        (shown.created_at, shown.last_polled_at),
        (scene.now(), None)
    );
    rotate(&scene, "a", 40, HOUR).await;
    let shown = admin.polling_endpoint(ops, "a").await.must();
    assert_eq!(shown.old_token_until, Some(scene.now().after(HOUR)));
    admin.remove_polling_endpoint(ops, "a").await.must();
    check_missing(&admin.polling_endpoint(ops, "a").await);
    check_missing(&admin.remove_polling_endpoint(ops, "a").await);
    for name in hostile() {
        check_missing(&admin.polling_endpoint(ops, &name).await);
        check_missing(&admin.remove_polling_endpoint(ops, &name).await);
    }
    let expected = [
        line("create", "done"),
        line("create", "done"),
        line("create", "done"),
        line("create", "refused"),
        line("rotate", "done"),
        line("remove", "done"),
    ];
    assert_eq!(scene.acts().await, expected);
}

/// An operator of a tenant sees and changes that tenant's endpoints only.
pub async fn an_operator_of_a_tenant_has_its_own_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, acme) = (&scene.admin, of("acme"));
    create(&scene, "a", Some("acme"), Start::Now).await;
    create(&scene, "b", Some("other"), Start::Now).await;
    create(&scene, "c", None, Start::Now).await;
    let own = admin.polling_endpoints(&acme, None, 10).await.must();
    let names: Vec<_> = own.items.into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["a"]);
    let hash = Token::mint([50; 32]).hash();
    for name in ["b", "c"] {
        check_missing(&admin.polling_endpoint(&acme, name).await);
        let rotated = admin.rotate_polling_token(&acme, name, &hash, HOUR).await;
        check_missing(&rotated);
        check_missing(&admin.remove_polling_endpoint(&acme, name).await);
    }
    for tenant in [Some("other"), None] {
        let (_, new) = endpoint("d", tenant, Start::Now);
        check_invalid(&admin.create_polling_endpoint(&acme, &new).await, "tenant");
    }
    admin.remove_polling_endpoint(&acme, "a").await.must();
}

/// An operator moves the committed position: to the oldest event, to now, or to a time. Each move is in
/// the audit log.
pub async fn operators_move_the_position_of_an_endpoint<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    scene.emit("order.created", Some("acme"), 2).await;
    create(&scene, "a", Some("acme"), Start::Now).await;
    create(&scene, "b", Some("other"), Start::Now).await;
    let lag = async || admin.polling_lag(ops, "a").await.must().events.number;
    assert_eq!(lag().await, 0);
    let started = admin.polling_endpoint(ops, "a").await.must().position;
    scene.advance(HOUR).await;
    let seek = async |to: Start| admin.seek_polling_endpoint(ops, "a", to).await;
    let moved = seek(Start::Beginning).await.must();
    assert!(moved.position < started, "{moved:?}");
    assert_eq!(moved.committed_at, Some(scene.now()));
    assert_eq!(lag().await, 2);
    scene.emit("order.created", Some("acme"), 3).await;
    assert_eq!(lag().await, 5);
    seek(Start::At(scene.now())).await.must();
    assert_eq!(lag().await, 3);
    seek(Start::Now).await.must();
    assert_eq!(lag().await, 0);
    let acme = of("acme");
    let own = admin.seek_polling_endpoint(&acme, "a", Start::Beginning);
    own.await.must();
    let other = admin.seek_polling_endpoint(&acme, "b", Start::Beginning);
    check_missing(&other.await);
    for name in hostile() {
        let missing = admin.seek_polling_endpoint(ops, &name, Start::Now);
        check_missing(&missing.await);
    }
    let seeks = scene.acts().await;
    let seeks = seeks.iter().filter(|it| **it == line("seek", "done"));
    assert_eq!(seeks.count(), 4);
}

/// The lag of an endpoint is the number of its events after the committed position, and the time of the
/// oldest one.
pub async fn the_lag_of_an_endpoint_is_counted<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let (_, mut orders) = endpoint("orders", Some("acme"), Start::Now);
    orders.types = vec!["order.*".to_owned()];
    admin.create_polling_endpoint(ops, &orders).await.must();
    create(&scene, "all", None, Start::Now).await;
    let lag = async |name: &str| {
        let lag = admin.polling_lag(ops, name).await.must();
        assert_eq!(lag.events.kind, CountKind::Exact);
        (lag.events.number, lag.oldest_at)
    };
    assert_eq!(lag("orders").await, (0, None));
    let early = scene.now();
    scene.emit("refund.created", Some("acme"), 1).await;
    scene.advance(HOUR).await;
    let late = scene.now();
    scene.emit("order.created", Some("acme"), 2).await;
    scene.emit("order.created", Some("other"), 1).await;
    scene.emit("order.created", None, 1).await;
    assert_eq!(lag("orders").await, (2, Some(late)));
    assert_eq!(lag("all").await, (5, Some(early)));
    check_missing(&admin.polling_lag(&of("other"), "orders").await);
    check_missing(&admin.polling_lag(ops, "none").await);
}

/// Gives an endpoint a token with this number.
async fn rotate<S: AdminUnderTest>(
    scene: &Scene<S>,
    name: &str,
    number: u8,
    overlap: Duration,
) -> Token {
    let token = Token::mint([number; 32]);
    let (admin, ops) = (&scene.admin, &scene.ops);
    let hash = token.hash();
    let rotated = admin.rotate_polling_token(ops, name, &hash, overlap);
    rotated.await.must();
    token
}

/// Which of the tokens open the endpoint `acme`, by its name as well as without one.
async fn valid<S: AdminUnderTest>(scene: &Scene<S>, tokens: &[Token]) -> Vec<bool> {
    let polling = polling(scene);
    let mut valid = Vec::new();
    for token in tokens {
        let token = token.reveal().as_bytes();
        let by_name = polling.authenticate("acme", token).await.is_ok();
        let fetched = polling.fetch(token, None, None).await;
        let by_itself = !matches!(fetched, Err(PollError::Unauthorized));
        assert_eq!(by_name, by_itself, "{fetched:?}");
        valid.push(by_name);
    }
    valid
}
