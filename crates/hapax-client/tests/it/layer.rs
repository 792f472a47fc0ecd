//! The tower layer around hyper's client.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hapax_client::{LayerError, Policy, Retried, RetryLayer, Stopped};
use hapax_testkit::{
    clock::seeded_random,
    http::{HttpReceiver, HttpReply},
    port::free_port,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::TokioExecutor,
};
use tower::{Layer as _, Service, ServiceExt as _};

use crate::{
    stage::{clock, quick, replying, reset, silence},
    traces::check_attempts,
};

type Body = Full<Bytes>;

async fn send(
    policy: Policy,
    request: Request<Body>,
) -> Result<Response<hyper::body::Incoming>, LayerError> {
    let http: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let layer = RetryLayer::new(policy, clock(), seeded_random(1), Error::is_connect);
    layer.layer(http).oneshot(request).await
}

fn request(method: Method, url: &str) -> Request<Body> {
    let body = Full::new(Bytes::from_static(b"{}"));
    Request::builder()
        .method(method)
        .uri(url)
        .body(body)
        .unwrap()
}

#[tokio::test]
async fn a_post_gets_a_key_and_the_same_request_is_sent_until_it_is_answered() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::closed());
    receiver.reply_next(HttpReply::status(503));
    let answer = send(quick(), request(Method::POST, &receiver.url("/a")))
        .await
        .unwrap();
    let outcome: &Retried = answer.extensions().get().unwrap();
    assert_eq!((answer.status().as_u16(), outcome.attempts.len()), (200, 3));
    assert_eq!(outcome.stopped, Stopped::Final);
    let arrived = receiver.received();
    let key = outcome.key.as_ref().unwrap().to_str().unwrap();
    for request in &arrived {
        assert_eq!(request.header("idempotency-key"), Some(key));
        assert_eq!(&request.body[..], b"{}");
        assert!(request.header("x-request-timeout").is_some());
    }
    check_attempts(&arrived);
}

#[tokio::test]
async fn an_answer_that_is_stored_under_the_key_ends_the_operation() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503).header("idempotency-status", "stored"));
    let answer = send(quick(), request(Method::POST, &receiver.url("/a")))
        .await
        .unwrap();
    let outcome: &Retried = answer.extensions().get().unwrap();
    assert_eq!((answer.status().as_u16(), outcome.attempts.len()), (503, 1));
    assert_eq!(outcome.stopped, Stopped::Final);
}

#[tokio::test]
async fn a_key_that_stands_on_the_request_stays() {
    let receiver = HttpReceiver::start().await;
    let mut request = request(Method::POST, &receiver.url("/a"));
    request
        .headers_mut()
        .insert("idempotency-key", "mine".parse().unwrap());
    send(quick(), request).await.unwrap();
    assert_eq!(
        receiver.received()[0].header("idempotency-key"),
        Some("mine")
    );
}

#[tokio::test]
async fn a_refused_connection_is_known_to_be_before_any_byte() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    // An unknown method gets no key, so the request is repeated only if nothing was sent.
    let method = Method::from_bytes(b"BREW").unwrap();
    let error = send(quick(), request(method.clone(), &url))
        .await
        .unwrap_err();
    assert_eq!(
        (error.stopped, error.attempts.len()),
        (Stopped::Exhausted, 5)
    );
    let receiver = replying(reset()).await;
    let error = send(quick(), request(method, &receiver.url("/")))
        .await
        .unwrap_err();
    assert_eq!(
        (error.stopped, error.attempts.len()),
        (Stopped::Unrepeatable, 1)
    );
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_left_at_the_deadline() {
    let receiver = replying(silence()).await;
    let mut policy = quick();
    policy.backoff.total = Duration::from_millis(200);
    let error = send(policy, request(Method::POST, &receiver.url("/")))
        .await
        .unwrap_err();
    assert_eq!(error.stopped, Stopped::Late);
}

/// A client that receives a 503 for its first request. `later` says whether it is ready after that.
#[derive(Clone)]
struct Busy {
    is_called: bool,
    later: Poll<Result<(), &'static str>>,
}

impl Service<Request<Body>> for Busy {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.is_called {
            self.later
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.is_called = true;
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        ready(Ok(response))
    }
}

async fn send_busy(second: Poll<Result<(), &'static str>>) -> Result<Response<Body>, LayerError> {
    let mut policy = quick();
    policy.backoff.total = Duration::from_millis(200);
    let is_unsent = |_: &&'static str| false;
    let layer = RetryLayer::new(policy, clock(), seeded_random(1), is_unsent);
    let client = Busy {
        is_called: false,
        later: second,
    };
    let request = request(Method::POST, "http://127.0.0.1/a");
    layer.layer(client).oneshot(request).await
}

#[tokio::test]
async fn a_client_that_is_not_ready_in_time_ends_the_operation_with_the_last_response() {
    let answer = send_busy(Poll::Pending).await.unwrap();
    let outcome: &Retried = answer.extensions().get().unwrap();
    assert_eq!((answer.status().as_u16(), outcome.attempts.len()), (503, 1));
    assert_eq!(outcome.stopped, Stopped::Late);
}

#[tokio::test]
async fn the_error_of_a_client_that_fails_between_two_attempts_has_the_first_one() {
    let error = send_busy(Poll::Ready(Err("closed"))).await.unwrap_err();
    assert_eq!(error.source.to_string(), "closed");
    assert_eq!(error.attempts.len(), 1);
}
