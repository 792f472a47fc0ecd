//! Tests that a customer cannot reach another one's endpoints and events in the portal: by no URL, id,
//! cookie, token, form or header.
//!
//! Each attempt names the statuses that it may be answered with, and no response contains anything of
//! bob's. At the end, bob's rows are unchanged, and the same requests succeed in bob's session.

mod attempt;
mod elsewhere;
mod forged;
mod forms;
mod routes;
mod scene;
mod tokens;

use std::{collections::BTreeSet, path::Path};

use hapax_testkit::browser::Driver;
use http::Method;
use serde_json::{Value, json};

use self::{attempt::Attempt, forged::Token, scene::Scene};
use crate::{
    portal_session::{COOKIE, PORTAL_KEY, link},
    shop::{Store, on_both_stores},
};

/// The least number of attempts over HTTP, and in a browser.
const ATTEMPTS_MIN: [usize; 2] = [180, 12];

on_both_stores! {
    nothing_of_another_tenant_is_reached_over_http,
}

async fn nothing_of_another_tenant_is_reached_over_http(on: Store) {
    let scene = Scene::new(on).await;
    let before = scene.rows().await;
    assert!(before.len() > 4, "{before:?}");
    let attempts = attempts(&scene);
    assert!(attempts.len() >= ATTEMPTS_MIN[0], "{}", attempts.len());
    for attempt in &attempts {
        attempt.check(&scene).await;
    }
    scene.check_receivers();
    scene.check_rows(&before).await;
    check_that_tokens_can_be_made(&scene).await;
    check_of_bob(&scene, &attempts).await;
    assert_ne!(scene.rows().await, before, "bob's own forms change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_tenant_is_reached_in_a_browser() {
    let scene = Scene::new(Store::Sqlite).await;
    let before = scene.rows().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/cross_tenant.mjs");
    let opened = scene.shop.url(&link(&scene.shop, "alice", "write").await);
    let secrets = scene.secrets().into_iter().map(|(_, secret)| secret);
    let bobs = &scene.bobs;
    let given = json!({
        "shop": scene.shop.url(""),
        "link": opened,
        "own": scene.own.endpoint,
        "event": scene.own.event,
        "endpoint": bobs.endpoint,
        "delivered": bobs.delivered,
        "failed": bobs.failed,
        "seal": scene.bob.seal,
        "expired": expired(&scene),
        "secrets": secrets.collect::<Vec<_>>(),
    });
    let target_tmp = env!("CARGO_TARGET_TMPDIR");
    let mut driver = Driver::start(target_tmp, &script, "portal", &[&given.to_string()]);
    let said = driver.heard().await;
    let attempts = said
        .strip_prefix("attempts ")
        .and_then(|it| it.parse().ok());
    let attempts: usize = attempts.unwrap_or_else(|| panic!("unexpected output: {said:?}"));
    assert!(attempts >= ATTEMPTS_MIN[1], "{attempts}");
    driver.answer("done");
    assert_eq!(driver.heard().await, "passed");
    driver.ended().await;
    scene.check_receivers();
    scene.check_rows(&before).await;
}

/// All attempts over HTTP, each with a different name.
fn attempts(scene: &Scene) -> Vec<Attempt> {
    let attempts = [
        routes::ids(scene),
        routes::paths(scene),
        routes::places(scene),
        forms::with_bobs_fields(scene),
        forms::of_a_new_endpoint(scene),
        forms::forged(scene),
        tokens::cookies(scene),
        tokens::altered(scene),
        elsewhere::of_operators(scene),
        elsewhere::of_the_shop(scene),
        forms::of_bob(scene),
    ]
    .concat();
    let names: BTreeSet<_> = attempts.iter().map(Attempt::name).collect();
    assert_eq!(names.len(), attempts.len(), "two attempts have one name");
    attempts
}

/// Sends what bob may do in his session. If a request fails there, its attempt proves nothing.
async fn check_of_bob(scene: &Scene, attempts: &[Attempt]) {
    let controls: Vec<_> = attempts.iter().filter(|it| it.is_bobs()).collect();
    assert_eq!(controls.len(), 16);
    for attempt in controls {
        let version = scene.version().await;
        attempt.check_of_bob(scene, &scene.bob, &version).await;
    }
}

/// Checks that a token which the tests sign with the key of the portal opens it. Otherwise the
/// forged ones would be refused for another reason.
async fn check_that_tokens_can_be_made(scene: &Scene) {
    let own = Token::read(scene.alice.token());
    let page = format!("/portal/endpoints/{}", scene.bobs.endpoint);
    for (tenant, status) in [("alice", 404), ("bob", 200)] {
        let set = |it: &mut Value| it["sub"] = json!(tenant);
        let token = own.with_claims(set).signed(PORTAL_KEY.as_bytes());
        let cookie = format!("{COOKIE}={token}");
        let headers = [("cookie", cookie.as_str())];
        let answer = scene.shop.send(Method::GET, &page, &headers, "").await;
        assert_eq!(answer.status, status, "{tenant}: {}", answer.text());
    }
}

/// A token of bob that has expired.
fn expired(scene: &Scene) -> String {
    let own = Token::read(scene.bob.token());
    let end = |it: &mut Value| it["exp"] = json!(1_700_000_000);
    own.with_claims(end).signed(PORTAL_KEY.as_bytes())
}
