//! Attempts with the session of the portal at the other parts of the shop.

use serde_json::json;

use super::{attempt::Attempt, scene::Scene};
use crate::shop::JSON;

/// A request with alice's token as a cookie and as a bearer token.
fn get(
    scene: &Scene,
    name: &'static str,
    path: impl Into<String>,
    statuses: &'static [u16],
) -> Attempt {
    Attempt::get(scene, name, path)
        .also("authorization", bearer(scene))
        .answered(statuses)
}

fn bearer(scene: &Scene) -> String {
    format!("Bearer {}", scene.alice.token())
}

/// The admin API and the console.
pub(super) fn of_operators(scene: &Scene) -> Vec<Attempt> {
    let link = |name, path: &str, statuses| {
        Attempt::post(scene, name, path, &[])
            .header(JSON.0, JSON.1)
            .also("authorization", bearer(scene))
            .body(json!({"tenant": "bob"}).to_string())
            .answered(statuses)
    };
    let get = |name, path: &str, statuses| get(scene, name, path, statuses);
    let event = format!("/admin/v1/events/{}", scene.bobs.delivered);
    vec![
        get(
            "endpoints of the admin API",
            "/admin/v1/endpoints?tenant=bob",
            &[401, 404],
        ),
        get("an event of the admin API", &event, &[401, 404]),
        get("audit log", "/admin/v1/audit", &[401, 404]),
        link("a link for bob", "/admin/portal-links", &[401]),
        link(
            "a link for bob, version 1",
            "/admin/v1/portal-links",
            &[401],
        ),
        link(
            "a link for bob without a token",
            "/admin/portal-links",
            &[401],
        )
        .without("authorization"),
        link(
            "a trial on his events in the admin API",
            "/admin/v1/endpoints/try",
            &[401, 404],
        ),
        get("events of the console", "/console/events", &[303, 401]),
        get("live figures of the console", "/console/live", &[303, 401]),
        get("overview of the console", "/console", &[303, 401]),
        get("audit log of the console", "/console/advanced", &[303, 401]),
    ]
}

/// Polling endpoints and the API of the shop.
pub(super) fn of_the_shop(scene: &Scene) -> Vec<Attempt> {
    let get = |name, path: &str, statuses| get(scene, name, path, statuses);
    let order = format!("/orders/{}", scene.bobs.order);
    vec![
        get("polling endpoint", "/poll/bob?wait=0", &[401, 404]),
        get("orders", "/orders", &[401]),
        get("an order", &order, &[401]),
        get("ledger", "/ledger", &[401]),
        get("metrics", "/metrics", &[200]),
        get("health", "/readyz", &[200]),
        get("description of the API", "/openapi.json", &[200]),
        get("public catalogue", "/catalogue", &[200, 404]),
        get(
            "a file of the server",
            "/portal/../../../etc/hostname",
            &[400, 404],
        ),
    ]
}
