//! Attempts with forms: bob's ids in their routes and fields, and forms of other sites.

use http::Method;
use serde_json::json;

use super::{
    attempt::{Attempt, VERSION},
    scene::Scene,
};
use crate::portal_session::form;

/// A mapping that shows everything that an event has.
const MAPPED: &str = r#"{"data": "$.data", "tenant": "$.tenant", "id": "$.id"}"#;

/// Every form of the portal, for bob's endpoint.
pub(super) fn of_bob(scene: &Scene) -> Vec<Attempt> {
    let his = &scene.bobs.endpoint;
    let post = |name, act: &str, fields: &[(&str, &str)]| {
        Attempt::post(scene, name, format!("/portal/endpoints/{his}{act}"), fields)
    };
    let change = [
        ("version", VERSION),
        ("url", "http://127.0.0.1:9/taken"),
        ("types", "*"),
        ("filter", ""),
        ("remove_headers", "yes"),
    ];
    let save = [&change[..], &[("action", "save")]].concat();
    let trial = [&change[..], &[("action", "try")]].concat();
    let mapped = [&trial[..], &[("mapping", MAPPED)]].concat();
    let rotate = [("version", VERSION), ("overlap", "0s")];
    let event = [("event_id", scene.bobs.failed.as_str())];
    // The one that deletes the endpoint comes last, because bob's session sends them too.
    vec![
        post("secret", "/reveal", &[]).bobs(),
        post("trial of a filter", "", &trial).bobs(),
        post("trial of a mapping", "", &mapped).bobs(),
        post("test event", "/test", &[]).bobs(),
        post("replay of what has failed", "/replay", &[("since", "7d")]).bobs(),
        post("replay of an event", "/replay", &event).bobs(),
        post("rotation", "/rotate", &rotate).bobs(),
        post("change of the URL", "", &save).bobs(),
        post("disabling", "/disable", &[]).bobs(),
        post("enabling", "/enable", &[]).bobs(),
        post("deletion", "/delete", &[("confirm", "yes")]).bobs(),
    ]
}

/// Forms of alice's endpoint with fields of bob's.
pub(super) fn with_bobs_fields(scene: &Scene) -> Vec<Attempt> {
    let mine = &scene.own.endpoint;
    let event = scene.bobs.delivered.as_str();
    let act = |name, act: &str, fields: &[(&str, &str)]| {
        Attempt::post(
            scene,
            name,
            format!("/portal/endpoints/{mine}{act}"),
            fields,
        )
    };
    let hidden = hidden(scene);
    vec![
        act("replay of his event", "/replay", &[("event_id", event)])
            .answered(&[303, 404])
            .like_absent(),
        act(
            "replay of her event and his",
            "/replay",
            &[("event_id", scene.own.event.as_str()), ("event_id", event)],
        )
        .answered(&[303, 400, 404]),
        act(
            "replay with hidden fields",
            "/replay",
            &[&hidden[..], &[("since", "7d")]].concat(),
        )
        .answered(&[303, 400]),
        act("secret with hidden fields", "/reveal", &hidden).answered(&[200, 400]),
        act("test event with hidden fields", "/test", &hidden).answered(&[200, 400]),
        act("JSON in place of a form", "/replay", &[])
            .header("content-type", "application/json")
            .body(json!({"seal": scene.alice.seal, "tenant": "bob", "event_id": event}).to_string())
            .answered(&[400, 403, 404, 415]),
        act(
            "a body with two seals",
            "/reveal",
            &[("seal", scene.bob.seal.as_str())],
        )
        .answered(&[200, 400, 403]),
        act("the form of his endpoint in the query", "/reveal", &hidden)
            .method(Method::GET)
            .answered(&[404, 405]),
    ]
}

/// The form of a new endpoint with fields of bob's, and trials of a filter and a mapping on his events.
pub(super) fn of_a_new_endpoint(scene: &Scene) -> Vec<Attempt> {
    let (hidden, nonce) = (hidden(scene), scene.bobs.nonce.as_str());
    let create =
        |name, fields: &[(&str, &str)]| Attempt::post(scene, name, "/portal/endpoints", fields);
    let his = json!({"/customer_id": {"$startsWith": "bob"}}).to_string();
    let trial = [
        ("action", "try"),
        ("url", "http://127.0.0.1:9/"),
        ("types", "*"),
    ];
    let new = [
        ("action", "create"),
        ("url", "http://127.0.0.1:9/nonce"),
        ("nonce", nonce),
    ];
    vec![
        create(
            "trial of a filter on the stored events",
            &[&trial[..], &[("filter", his.as_str())]].concat(),
        )
        .answered(&[200]),
        create(
            "trial of a filter with hidden fields",
            &[&trial[..], &hidden].concat(),
        )
        .answered(&[200]),
        create(
            "trial of a mapping on the stored events",
            &[&trial[..], &[("mapping", MAPPED)]].concat(),
        )
        .answered(&[200]),
        create(
            "trial of a mapping with hidden fields",
            &[&trial[..], &[("mapping", MAPPED)], &hidden].concat(),
        )
        .answered(&[200]),
        create("nonce of his form", &new).answered(&[200]),
        create(
            "new endpoint with hidden fields",
            &[&new[..2], &hidden].concat(),
        )
        .answered(&[200]),
    ]
}

/// A tenant and an endpoint as fields that no form has.
fn hidden(scene: &Scene) -> [(&'static str, &str); 4] {
    let his = scene.bobs.endpoint.as_str();
    [
        ("tenant", "bob"),
        ("id", his),
        ("endpoint", his),
        ("sub", "bob"),
    ]
}

/// Forms without a seal of the session, and forms that other sites send.
pub(super) fn forged(scene: &Scene) -> Vec<Attempt> {
    let (mine, his) = (&scene.own.endpoint, &scene.bobs.endpoint);
    let (own, bobs) = (
        format!("/portal/endpoints/{mine}/reveal"),
        format!("/portal/endpoints/{his}/delete"),
    );
    let confirm = ("confirm", "yes");
    let bare = |name, fields: &[(&str, &str)]| Attempt::unsealed(scene, name, own.clone(), fields);
    // Alice's page makes bob's browser send a form: the cookie is his, and she can only add what she has.
    let in_bobs_browser = |name, seal: Option<&str>| {
        let mut fields = vec![confirm];
        fields.extend(seal.map(|seal| ("seal", seal)));
        Attempt::unsealed(scene, name, bobs.clone(), &fields).header("cookie", &*scene.bob.cookie)
    };
    let (seal, bob_seal) = (scene.alice.seal.as_str(), scene.bob.seal.as_str());
    let longer = format!("{seal}0");
    let in_query = form(&[("seal", seal)]);
    vec![
        bare("no seal", &[]),
        bare("an empty seal", &[("seal", "")]),
        bare("the seal of bob's session", &[("seal", bob_seal)]),
        bare(
            "a seal with one more character",
            &[("seal", longer.as_str())],
        ),
        Attempt::unsealed(
            scene,
            "a seal in the query",
            format!("{own}?{in_query}"),
            &[],
        ),
        bare("a seal in a header", &[]).also("x-csrf-token", seal),
        Attempt::post(scene, "another origin", own.clone(), &[])
            .header("origin", "https://evil.example")
            .answered(&[403]),
        Attempt::post(scene, "an origin of null", own.clone(), &[])
            .header("origin", "null")
            .answered(&[403]),
        Attempt::post(scene, "another port of this host", own.clone(), &[])
            .header("origin", "http://127.0.0.1:9")
            .answered(&[403]),
        Attempt::post(scene, "another site", own.clone(), &[])
            .without("origin")
            .also("sec-fetch-site", "cross-site")
            .answered(&[403]),
        in_bobs_browser("deletion in his browser", None),
        in_bobs_browser("deletion in his browser with her seal", Some(seal)),
        in_bobs_browser(
            "deletion in his browser from another origin",
            Some(bob_seal),
        )
        .header("origin", "https://evil.example"),
        in_bobs_browser("deletion in his browser from a sandbox", Some(bob_seal))
            .header("origin", "null"),
    ]
}
