//! Attempts with bob's ids in routes, with tricks in paths, and with a tenant in other places.

use http::Method;

use super::{
    attempt::Attempt,
    scene::{MARKER, Scene},
};

/// Bob's ids in the routes of the portal.
pub(super) fn ids(scene: &Scene) -> Vec<Attempt> {
    let (own, bobs) = (&scene.own, &scene.bobs);
    let (mine, his) = (&own.endpoint, &bobs.endpoint);
    let get = |name, path: String| Attempt::get(scene, name, path);
    let delivery = |endpoint: &str, event: &str| format!("/portal/deliveries/{endpoint}/{event}");
    vec![
        get("page of an endpoint", format!("/portal/endpoints/{his}")).bobs(),
        get(
            "list of deliveries",
            format!("/portal/endpoints/{his}/deliveries"),
        )
        .bobs(),
        get(
            "list of failed deliveries",
            format!("/portal/endpoints/{his}/deliveries?state=failed"),
        )
        .bobs(),
        get("request and response", delivery(his, &bobs.delivered)).bobs(),
        get(
            "request and response of a failure",
            delivery(his, &bobs.failed),
        )
        .bobs(),
        get("event at her endpoint", delivery(mine, &bobs.delivered)).like_absent(),
        get("failed event at her endpoint", delivery(mine, &bobs.failed)).like_absent(),
        get("her event at his endpoint", delivery(his, &own.event)).like_absent(),
        get(
            "event in place of an endpoint",
            delivery(&bobs.delivered, &bobs.delivered),
        )
        .like_absent(),
        get(
            "page of a form of his endpoint",
            format!("/portal/endpoints/{his}/rotate"),
        )
        .answered(&[404, 405]),
        get("secret by GET", format!("/portal/endpoints/{his}/reveal")).answered(&[404, 405]),
        get(
            "head of a page",
            format!("/portal/endpoints/{his}/deliveries"),
        )
        .method(Method::HEAD)
        .like_absent(),
        get("deletion by DELETE", format!("/portal/endpoints/{his}"))
            .method(Method::DELETE)
            .answered(&[404, 405]),
        get("change by PUT", format!("/portal/endpoints/{his}"))
            .method(Method::PUT)
            .answered(&[404, 405]),
        get("change by PATCH", format!("/portal/endpoints/{his}"))
            .method(Method::PATCH)
            .answered(&[404, 405]),
    ]
}

/// Paths that another reader of paths may take for those of bob's endpoint.
pub(super) fn paths(scene: &Scene) -> Vec<Attempt> {
    let (mine, his) = (&scene.own.endpoint, &scene.bobs.endpoint);
    let upper = his.to_uppercase();
    let hex = his.trim_start_matches("ep_");
    let get = |name, path: String| {
        Attempt::get(scene, name, format!("/portal{path}")).answered(&[400, 404])
    };
    vec![
        get("dot segments", format!("/endpoints/{mine}/../{his}")),
        get(
            "dot segments from a public path",
            format!("/open/../endpoints/{his}"),
        ),
        get(
            "encoded dot segments",
            format!("/endpoints/{mine}/%2e%2e/{his}"),
        ),
        get("encoded slashes", format!("/endpoints/{mine}%2F..%2F{his}")),
        get(
            "slashes that are encoded twice",
            format!("/endpoints/{mine}%252F..%252F{his}"),
        ),
        get("backslashes", format!("/endpoints/{mine}\\..\\{his}")),
        get("an encoded letter", format!("/endpoints/%65p_{hex}")),
        get(
            "a letter that is encoded twice",
            format!("/endpoints/%2565p_{hex}"),
        ),
        get("a wide letter", format!("/endpoints/%EF%BD%85p_{hex}")),
        get("upper case", format!("/endpoints/{upper}")),
        get("a trailing dot", format!("/endpoints/{his}.")),
        get("a trailing slash", format!("/endpoints/{his}/")),
        get("two slashes", format!("//endpoints//{his}")),
        get("a trailing space", format!("/endpoints/{his}%20")),
        get("a NUL", format!("/endpoints/{his}%00")),
        get("a line break", format!("/endpoints/{mine}%0D%0A{his}")),
        get("matrix parameters", format!("/endpoints/{his};tenant=bob")),
        get(
            "matrix parameters of her endpoint",
            format!("/endpoints/{mine};id={his}"),
        ),
        get("an extension", format!("/endpoints/{his}.json")),
        get("two ids", format!("/endpoints/{mine},{his}")),
        get("a wildcard", "/endpoints/ep_%25".to_owned()),
        get(
            "a condition of SQL",
            format!("/endpoints/{his}'%20OR%20'1'='1"),
        ),
        get("an id without its prefix", format!("/endpoints/{hex}")),
        get(
            "bytes that are not UTF-8",
            format!("/endpoints/{his}%FF%FE"),
        ),
        Attempt::get(
            scene,
            "upper case of the route",
            format!("/PORTAL/endpoints/{his}"),
        )
        .answered(&[400, 404]),
    ]
}

/// A tenant, or another path, in places that a server may read.
pub(super) fn places(scene: &Scene) -> Vec<Attempt> {
    let (mine, his) = (&scene.own.endpoint, &scene.bobs.endpoint);
    let page = format!("/portal/endpoints/{his}");
    let get = |name, path: &str| Attempt::get(scene, name, path);
    let on_page = |name| get(name, &page).like_absent();
    let start = |name| get(name, "/portal").answered(&[200, 400, 403]);
    vec![
        get("tenant in the query", &format!("{page}?tenant=bob")).like_absent(),
        get(
            "tenant in the query of the start page",
            "/portal?tenant=bob&sub=bob",
        )
        .answered(&[200, 400]),
        get(
            "endpoint in the query",
            &format!("/portal/endpoints/{mine}/deliveries?endpoint={his}&tenant=bob"),
        )
        .answered(&[200, 400]),
        get(
            "event in the query",
            &format!(
                "/portal/endpoints/{mine}/deliveries?event_id={}",
                scene.bobs.delivered
            ),
        )
        .answered(&[200, 400]),
        get(
            "another start of the list",
            &format!("/portal/endpoints/{mine}/deliveries?before=9223372036854775807&state=*"),
        )
        .answered(&[200, 400]),
        on_page("tenant in a header").also("x-hapax-tenant", "bob"),
        on_page("tenant in other headers")
            .also("x-tenant", "bob")
            .also("x-tenant-id", "bob"),
        on_page("user in headers of proxies")
            .also("x-forwarded-user", "bob")
            .also("x-remote-user", "bob")
            .also("x-auth-request-user", "bob"),
        on_page("address of this machine in headers of proxies")
            .also("x-forwarded-for", "127.0.0.1")
            .also("x-real-ip", "127.0.0.1")
            .also("forwarded", "for=127.0.0.1;host=bob"),
        on_page("tenant as the name of the host").also("host", "bob.example.com"),
        on_page("tenant as the forwarded host").also("x-forwarded-host", "bob.example.com"),
        start("path in a header of proxies").also("x-original-url", page.clone()),
        start("rewritten path in a header of proxies").also("x-rewrite-url", page.clone()),
        start("forwarded prefix").also("x-forwarded-prefix", page.clone()),
        start("method in a header").also("x-http-method-override", "DELETE"),
        on_page("her token of the shop").also("authorization", "Bearer demo-alice"),
        on_page("name of bob as a user").also("authorization", "Basic Ym9iOmJvYg=="),
        get("list of event types", "/portal/event-types").answered(&[200, 404]),
        get("search", &format!("/portal?q={}&search=*", &MARKER[..3])).answered(&[200, 400]),
        get("picture of the portal", "/portal/logo").answered(&[200, 404]),
    ]
}
