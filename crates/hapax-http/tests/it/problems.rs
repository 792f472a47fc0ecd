//! Tests that every error is a problem with the request's id.

use axum::{Router, body::Body, response::Response, routing::get};
use hapax_http::{Json, Path, Problem, Query, problem};
use http::{Request, StatusCode};
use serde::Deserialize;

use crate::stage::{Stage, post_json, send};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read by serde")]
struct Page {
    #[serde(default)]
    limit: u8,
}

#[tokio::test]
async fn a_route_that_is_not_there_and_a_method_that_is_not_allowed_are_problems() {
    let stage = Stage::new().await;
    let request = Request::get("/nowhere").body(Body::empty()).unwrap();
    stage.send(request).await.check_problem(404, "NOT_FOUND");
    let bare = stage.named(Router::new().route("/a", get(async || "a")));
    let request = Request::delete("/a").body(Body::empty()).unwrap();
    let refused = send(bare.clone(), request).await;
    refused.check_problem(405, "VALIDATION.method");
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    let request = Request::get("/b").body(Body::empty()).unwrap();
    send(bare, request).await.check_problem(404, "NOT_FOUND");
    let own = Router::new()
        .route("/a", get(async || "a"))
        .method_not_allowed_fallback(problem::method_not_allowed);
    let request = Request::delete("/a").body(Body::empty()).unwrap();
    send(stage.named(own), request)
        .await
        .check_problem(405, "VALIDATION.method");
}

#[tokio::test]
async fn what_a_layer_below_says_of_the_body_is_not_said_of_the_problem() {
    let stage = Stage::new().await;
    let zip = |mut response: Response| async {
        let headers = response.headers_mut();
        for (name, value) in [
            ("content-encoding", "gzip"),
            ("etag", "\"a\""),
            ("vary", "a"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        response
    };
    let router = Router::new()
        .route("/problem", get(async || Problem::not_found()))
        .route("/plain", get(async || (StatusCode::NOT_FOUND, "plain")))
        .layer(axum::middleware::map_response(zip));
    let router = stage.named(router);
    for path in ["/problem", "/plain"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let sent = send(router.clone(), request).await;
        sent.check_problem(404, "NOT_FOUND");
        assert_eq!(sent.header("content-encoding"), None, "{path}");
        assert_eq!(
            (sent.header("etag"), sent.header("vary")),
            (None, Some("a"))
        );
    }
}

#[tokio::test]
async fn axums_own_refusals_become_problems_before_they_are_stored() {
    let mut stage = Stage::new().await;
    let layer = stage.idempotency.operation("/axum");
    let handler = async |_: axum::Json<u8>| "done";
    stage.route("/axum", axum::routing::post(handler).layer(layer));
    let first = stage.send(post_json("/axum", "k", "\"text\"")).await;
    first.check_problem(422, "VALIDATION.request");
    let again = stage.send(post_json("/axum", "k", "\"text\"")).await;
    assert_eq!(again.idempotency(), Some("replayed"));
    assert_eq!(again.body, first.body);
}

#[tokio::test]
async fn bodies_queries_and_paths_that_do_not_fit_name_what_is_wrong() {
    let stage = Stage::new().await;
    let router = Router::new()
        .route("/json", axum::routing::post(async |_: Json<Page>| "done"))
        .route("/query", get(async |_: Query<Page>| "done"))
        .route("/path/{n}", get(async |_: Path<u8>| "done"));
    let router = stage.named(router);
    let unknown = send(router.clone(), post_json("/json", "", "{\"colour\":1}")).await;
    unknown.check_problem(400, "VALIDATION.member");
    assert_eq!(unknown.json()["member"], "colour");
    let mut text = post_json("/json", "", "{}");
    text.headers_mut()
        .insert("content-type", "text/plain".parse().unwrap());
    send(router.clone(), text)
        .await
        .check_problem(415, "VALIDATION.content_type");
    for (path, status, code) in [
        ("/query?colour=1", 400, "VALIDATION.member"),
        ("/query?limit=x", 400, "VALIDATION.member"),
        ("/path/x", 404, "NOT_FOUND"),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        send(router.clone(), request)
            .await
            .check_problem(status, code);
    }
    let request = Request::get("/query?limit=1").body(Body::empty()).unwrap();
    assert_eq!(send(router, request).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_query_that_does_not_fit_names_its_member() {
    let stage = Stage::new().await;
    let router = stage.named(Router::new().route("/query", get(async |_: Query<Page>| "done")));
    for (query, member) in [
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("colour=1", "colour"),
        ("limit=1&limit=2", "limit"),
    ] {
        let request = Request::get(format!("/query?{query}"));
        let refused = send(router.clone(), request.body(Body::empty()).unwrap()).await;
        refused.check_problem(400, "VALIDATION.member");
        assert_eq!(refused.json()["member"], member, "{query}");
    }
}

#[tokio::test]
async fn a_requests_id_is_the_callers_when_it_is_sane() {
    let stage = Stage::new().await;
    for (sent, taken) in [("req-1", true), ("no good", false)] {
        let mut request = post_json("/effects", "", "{}");
        request
            .headers_mut()
            .insert("x-request-id", sent.parse().unwrap());
        let answer = stage.send(request).await;
        assert_eq!(answer.header("x-request-id") == Some(sent), taken);
        assert_eq!(
            answer.json()["request_id"],
            answer.header("x-request-id").unwrap()
        );
    }
}
