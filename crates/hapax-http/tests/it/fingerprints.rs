//! Tests of fingerprints: which requests count as the same request.

use axum::{Router, body::Body, routing::post};
use hapax_http::FingerprintMode;
use http::{Request, StatusCode};

use crate::stage::{Stage, post_json, send};

/// The hashes were computed by another program. If one of them changes, every repetition of a stored
/// request becomes a mismatch.
#[tokio::test]
async fn the_fingerprint_of_each_mode_is_stable() {
    let body = r#"{ "b" : 1.0, "a":[true,null] }"#;
    for (mode, fingerprint) in [
        (
            FingerprintMode::Json,
            "bf30c4f0b5c231894fce2e56f3772a3bfb008fe2277b2354607c468ba0bd622c",
        ),
        (
            FingerprintMode::Raw,
            "7d4eb3cd9c2acefbaaf70313db362d96ff81bfe842459171da3b9daf88658582",
        ),
        (
            FingerprintMode::JsonSemantic,
            "f2de9c8296d2648a86bed203286c08c64f9ec264f360909e7e66de1d129cd792",
        ),
    ] {
        let mut stage = Stage::new().await;
        let layer = stage.idempotency.operation("/any").fingerprint(mode);
        stage.route("/any", post(async || "done").layer(layer));
        stage.send(post_json("/any", "k", body)).await;
        let stored = stage.store.read(|db| {
            let sql = "SELECT lower(hex(fingerprint)) FROM hapax_idempotency_key";
            db.query_row(sql, [], |row| row.get::<_, String>(0))
        });
        assert_eq!(stored.await.unwrap(), fingerprint, "{mode:?}");
    }
}

#[tokio::test]
async fn a_body_is_never_the_same_request_in_two_modes() {
    // Text and an empty body are hashed in the same way in every mode.
    for body in ["{}", "1", "text", ""] {
        for (first, second) in [
            (FingerprintMode::Raw, FingerprintMode::Json),
            (FingerprintMode::Json, FingerprintMode::JsonSemantic),
            (FingerprintMode::JsonSemantic, FingerprintMode::Raw),
        ] {
            let stage = Stage::with(|it| it.cache_bytes = 0, |it| it).await;
            let request = || {
                let request = Request::post("/any").header("content-type", "text/plain");
                let request = request.header("idempotency-key", "k");
                request.body(Body::from(body)).unwrap()
            };
            let router = |mode| {
                let layer = stage.idempotency.operation("/any").fingerprint(mode);
                stage.named(Router::new().route("/any", post(async || "done").layer(layer)))
            };
            let sent = send(router(first), request()).await;
            assert_eq!(sent.idempotency(), Some("stored"));
            let sent = send(router(second), request()).await;
            assert_eq!(sent.status, StatusCode::CONFLICT, "{body:?} in {second:?}");
        }
    }
}

#[tokio::test]
async fn a_new_boundary_is_another_body_in_the_raw_mode() {
    let mut stage = Stage::new().await;
    let layer = stage.idempotency.operation("/any/{id}");
    let layer = layer.fingerprint(FingerprintMode::Raw);
    stage.route("/any/{id}", post(async || "done").layer(layer));
    let of = |boundary| multipart(boundary, &[("file", "a.png", "image/png", "bytes")]);
    assert_eq!(stage.send(of("aaa")).await.idempotency(), Some("stored"));
    assert_eq!(stage.send(of("aaa")).await.idempotency(), Some("replayed"));
    let other = stage.send(of("bbb")).await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn the_order_of_members_and_space_make_no_difference() {
    check_json(
        r#"{"a":1,"b":[1,{"c":2,"d":3}]}"#,
        "{ \"b\" : [1, {\"d\":3,\"c\":2}],\n\"a\":1 }",
        true,
    )
    .await;
    check_json(r#"{"a":"é"}"#, r#"{"a":"\u00e9"}"#, true).await;
}

#[tokio::test]
async fn numbers_that_a_double_cannot_tell_apart_are_two_requests() {
    check_json(
        r#"{"a":9007199254740993}"#,
        r#"{"a":9007199254740992}"#,
        false,
    )
    .await;
    check_json(
        r#"{"a":9007199254740993}"#,
        r#"{ "a":9007199254740993}"#,
        true,
    )
    .await;
}

#[tokio::test]
async fn numbers_of_one_value_are_one_request_if_the_operation_says_so() {
    let body = |number: &str, pad: usize| {
        let pad = "x".repeat(pad);
        format!(r#"{{"a":{number},"pad":"{pad}"}}"#)
    };
    for (is_by_value, expected) in [(true, StatusCode::OK), (false, StatusCode::CONFLICT)] {
        let mut stage = Stage::new().await;
        let mut layer = stage.idempotency.operation("/any/{id}");
        if is_by_value {
            layer = layer.fingerprint(FingerprintMode::JsonSemantic);
        }
        stage.route("/any/{id}", post(async || "done").layer(layer));
        // The second body is long enough to be hashed on a separate thread.
        for (key, pad) in [("short", 0), ("long", 1 << 19)] {
            let send = async |number| {
                let sent = stage.send(post_json("/any/1", key, &body(number, pad)));
                sent.await.status
            };
            assert_eq!(send("4200").await, StatusCode::OK);
            assert_eq!(send("4200.0").await, expected);
            assert_eq!(send("4.2e3").await, expected);
            assert_eq!(send("4200.01").await, StatusCode::CONFLICT);
        }
    }
}

#[tokio::test]
async fn a_value_an_order_of_elements_or_a_member_more_is_another_request() {
    check_json(r#"{"a":1}"#, r#"{"a":2}"#, false).await;
    check_json(r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false).await;
    check_json(r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false).await;
    check_json(r#"{"a":1}"#, r#"{"a":"1"}"#, false).await;
}

#[tokio::test]
async fn the_path_the_query_and_the_content_type_belong_to_the_fingerprint() {
    let of = |path: &'static str, content_type: &'static str, body: &'static str| {
        let request = Request::post(path).header("content-type", content_type);
        request
            .header("idempotency-key", "k")
            .body(Body::from(body))
            .unwrap()
    };
    let text = "text/plain";
    check(of("/any/1", text, "x"), of("/any/1", text, "x"), true).await;
    check(of("/any/1", text, "x"), of("/any/2", text, "x"), false).await;
    check(
        of("/any/1?a=1", text, "x"),
        of("/any/1?a=2", text, "x"),
        false,
    )
    .await;
    check(of("/any/1?a=1", text, "x"), of("/any/1", text, "x"), false).await;
    check(
        of("/any/1", text, "x"),
        of("/any/1", "text/html", "x"),
        false,
    )
    .await;
    check(
        of("/any/1", text, "x"),
        of("/any/1", "Text/Plain; charset=utf-8", "x"),
        true,
    )
    .await;
    check(of("/any/1", text, "x"), of("/any/1", text, "x "), false).await;
    check(
        of("/any/1", "application/json", "{}"),
        of("/any/1", text, "{}"),
        false,
    )
    .await;
}

#[tokio::test]
async fn a_parameter_in_the_prefix_of_a_nested_router_counts() {
    let stage = Stage::new().await;
    let layer = stage.idempotency.operation("/accounts/{id}/orders");
    let orders = Router::new().route("/orders", post(async || "done").layer(layer));
    let router = stage.named(Router::new().nest("/accounts/{id}", orders));
    let first = send(router.clone(), post_json("/accounts/1/orders", "k", "{}")).await;
    assert_eq!(first.idempotency(), Some("stored"));
    let other = send(router, post_json("/accounts/2/orders", "k", "{}")).await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn transport_headers_take_no_part() {
    let with = |name: &'static str, value: &'static str| {
        let mut request = post_json("/any/1", "k", "{}");
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    check(with("user-agent", "a"), with("user-agent", "b"), true).await;
    check(with("x-forwarded-for", "1"), with("accept", "*/*"), true).await;
}

#[tokio::test]
async fn a_new_boundary_is_the_same_multipart_body() {
    let first = multipart("aaa", &[("file", "a.png", "image/png", "bytes")]);
    let again = multipart("b-b-b", &[("file", "a.png", "image/png", "bytes")]);
    check(first, again, true).await;
    let long = "x".repeat(3 * 1024 * 1024);
    let first = multipart(
        "aaa",
        &[
            ("file", "a", "image/png", &long),
            ("note", "n", "text/plain", ""),
        ],
    );
    let again = multipart(
        "bbb",
        &[
            ("file", "a", "image/png", &long),
            ("note", "n", "text/plain", ""),
        ],
    );
    check(first, again, true).await;
}

#[tokio::test]
async fn a_part_that_differs_is_another_multipart_body() {
    let of = |part| multipart("aaa", &[part]);
    let first = ("file", "a.png", "image/png", "bytes");
    for other in [
        ("data", "a.png", "image/png", "bytes"),
        ("file", "b.png", "image/png", "bytes"),
        ("file", "a.png", "image/gif", "bytes"),
        ("file", "a.png", "image/png", "byte"),
    ] {
        check(of(first), of(other), false).await;
    }
    let two = multipart("aaa", &[first, first]);
    check(of(first), two, false).await;
}

#[tokio::test]
async fn what_is_no_multipart_is_refused() {
    let stage = Stage::new().await;
    for (content_type, body) in [
        ("multipart/form-data", "--a--"),
        ("multipart/form-data; boundary=a", "--a\r\ncontent-dis"),
    ] {
        let request = Request::post("/effects").header("content-type", content_type);
        let request = request
            .header("idempotency-key", "k")
            .body(Body::from(body))
            .unwrap();
        stage
            .send(request)
            .await
            .check_problem(400, "VALIDATION.multipart");
    }
}

fn multipart(boundary: &str, parts: &[(&str, &str, &str, &str)]) -> Request<Body> {
    let part = |(name, file, media_type, content): &(&str, &str, &str, &str)| {
        format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"; \
             filename=\"{file}\"\r\ncontent-type: {media_type}\r\n\r\n{content}\r\n"
        )
    };
    let body: String = parts.iter().map(part).collect();
    let body = format!("{body}--{boundary}--\r\n");
    Request::post("/any/1")
        .header(
            "content-type",
            format!("multipart/form-data; boundary=\"{boundary}\""),
        )
        .header("idempotency-key", "k")
        .body(Body::from(body))
        .unwrap()
}

async fn check_json(first: &str, second: &str, same: bool) {
    check(
        post_json("/any/1", "k", first),
        post_json("/any/1", "k", second),
        same,
    )
    .await;
}

async fn check(first: Request<Body>, second: Request<Body>, same: bool) {
    let mut stage = Stage::new().await;
    let layer = stage
        .idempotency
        .operation("/any/{id}")
        .body_max(32 * 1024 * 1024);
    stage.route("/any/{id}", post(async || "done").layer(layer));
    let what = format!("{first:?} and {second:?}");
    assert_eq!(
        stage.send(first).await.idempotency(),
        Some("stored"),
        "{what}"
    );
    let second = stage.send(second).await;
    if same {
        assert_eq!(second.idempotency(), Some("replayed"), "{what}");
    } else {
        assert_eq!(second.status, StatusCode::CONFLICT, "{what}");
    }
}
