//! Tokens of OAuth 2.0, with a token endpoint that grants, expires, refuses and fails.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use hapax::{
    event::NewEvent,
    sink::{Offer, Outcome, Sink as _, SinkError},
};
use hapax_sinks::webhook::{AuthStyle, OauthSettings, Webhook};
use hapax_testkit::{
    clock::ManualClock,
    http::{End, HttpReceiver, HttpReply},
};
use serde_json::json;

use crate::{
    events::{any_offer, deliver, error_type, offer, postponed},
    sinks,
};

const SECRET: &str = "hunter2-client";
/// The pause after a failed fetch.
const PAUSE: Duration = Duration::from_secs(1);
/// The timeout of an attempt: some of the token endpoints never respond.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_token_is_shared_until_shortly_before_it_expires() {
    let fixture = Fixture::granting().await;
    for _ in 0..3 {
        fixture.deliver().await.unwrap();
    }
    fixture.clock.advance(Duration::from_secs(269));
    fixture.deliver().await.unwrap();
    assert_eq!(fixture.fetches(), 1);
    fixture.clock.advance(Duration::from_secs(1));
    fixture.deliver().await.unwrap();
    assert_eq!(fixture.fetches(), 2);
    let sent = fixture.authorizations();
    assert_eq!(sent[..4], ["Bearer token-1"; 4]);
    assert_eq!(sent[4], "Bearer token-2");
}

#[tokio::test]
async fn the_client_authenticates_by_http_basic_or_in_the_body() {
    let fixture = Fixture::granting().await;
    fixture.deliver().await.unwrap();
    let in_body = fixture.webhook(|it| {
        it.auth_style = AuthStyle::Body;
        it.scope = Some("events:write".to_owned());
        it.audience = Some("https://api.example.com".to_owned());
    });
    deliver(&in_body, any_offer()).await.unwrap();
    let taken = fixture.provider.received();
    let [by_basic, by_body] = &taken[..] else {
        panic!("{} requests", taken.len());
    };
    // The base64 of `hapax:hunter2-client`.
    let login = "Basic aGFwYXg6aHVudGVyMi1jbGllbnQ=";
    assert_eq!(by_basic.header("authorization"), Some(login));
    assert_eq!(by_basic.body, "grant_type=client_credentials");
    let form = "application/x-www-form-urlencoded";
    assert_eq!(by_basic.header("content-type"), Some(form));
    assert_eq!(by_body.header("authorization"), None);
    assert_eq!(
        by_body.body,
        "grant_type=client_credentials&scope=events%3Awrite\
         &audience=https%3A%2F%2Fapi.example.com&client_id=hapax&client_secret=hunter2-client"
    );
}

#[tokio::test]
async fn deliveries_at_the_same_time_wait_for_one_fetch() {
    let fixture = Fixture::granting().await;
    let slow = granted(1).after(Duration::from_millis(200));
    fixture.provider.reply_next(slow);
    let outcomes = fixture.webhook.deliver(&many()).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(fixture.fetches(), 1);
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_the_delivery_is_repeated_once() {
    let fixture = Fixture::granting().await;
    fixture.accept_only("token-2");
    let receipt = fixture.deliver().await.unwrap();
    assert_eq!(receipt.status, Some(200));
    assert_eq!(
        fixture.authorizations(),
        ["Bearer token-1", "Bearer token-2"]
    );
    let taken = fixture.endpoint.received();
    assert_eq!(taken[0].header("webhook-id"), taken[1].header("webhook-id"));
    fixture.deliver().await.unwrap();
    assert_eq!(fixture.fetches(), 2);
}

#[tokio::test]
async fn a_second_401_is_a_failed_attempt_and_the_next_second_replaces_no_token() {
    let fixture = Fixture::granting().await;
    fixture.accept_only("no token");
    for (requests, fetches) in [(2, 2), (3, 2)] {
        let error = fixture.deliver().await.unwrap_err();
        assert_eq!(error.error_type(), "status_4xx");
        assert_eq!(error.receipt().status, Some(401));
        assert_eq!(fixture.endpoint.received().len(), requests);
        assert_eq!(fixture.fetches(), fetches);
    }
    fixture.clock.advance(PAUSE);
    assert_eq!(error_type(fixture.deliver().await), "status_4xx");
    assert_eq!(fixture.fetches(), 3);
}

#[tokio::test]
async fn deliveries_whose_token_was_refused_replace_it_once() {
    let fixture = Fixture::granting().await;
    fixture.deliver().await.unwrap();
    fixture.accept_only("token-2");
    let outcomes = fixture.webhook.deliver(&many()).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(fixture.fetches(), 2);
}

#[tokio::test]
async fn a_token_endpoint_that_fails_is_the_reason_of_the_attempt() {
    let body = |body: &str| HttpReply::status(200).body(body.to_owned());
    let refused = HttpReply::status(401)
        .body("{\"error\": \"invalid_client\", \"error_description\": \"hunter2\"}");
    for (reply, reason) in [
        (refused, "401 Unauthorized and the error invalid_client"),
        (
            HttpReply::status(500).body("hunter2"),
            "responded with 500 Internal Server Error",
        ),
        (
            HttpReply::status(302).header("location", "http://127.0.0.1:1/"),
            "responded with 302 Found",
        ),
        (body("hunter2"), "is not a JSON object"),
        (body("[\"hunter2\"]"), "is not a JSON object"),
        (body("{\"token_type\": \"bearer\"}"), "has no access_token"),
        (
            body("{\"access_token\": \"hunter2\", \"token_type\": \"mac\"}"),
            "another token_type than Bearer",
        ),
        (
            body("{\"access_token\": \"hunter2\"}"),
            "another token_type than Bearer",
        ),
        (
            body("{\"access_token\": \"hunter2\\n\", \"token_type\": \"bearer\"}"),
            "other than printable ASCII",
        ),
        (
            HttpReply::status(200).large_body(1 << 20),
            "larger than 65536 bytes",
        ),
        (HttpReply::closed(), "no response of the token endpoint"),
        (HttpReply::raw("", End::Stall), "has not responded in time"),
        (
            HttpReply::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", End::Stall),
            "has not responded in time",
        ),
    ] {
        let fixture = Fixture::granting().await;
        fixture.provider.reply(reply);
        let outcome = fixture.deliver().await;
        let said = postponed(&outcome, "token");
        assert!(said.contains(reason), "{said}: expected {reason}");
        assert!(!format!("{outcome:?} {said}").contains("hunter2"), "{said}");
        assert!(matches!(outcome, Err(SinkError::Unavailable { .. })));
        assert!(fixture.endpoint.received().is_empty());
    }
}

#[tokio::test]
async fn after_a_failure_a_token_is_fetched_at_most_once_a_second() {
    let fixture = Fixture::granting().await;
    let busy = HttpReply::status(503).header("retry-after", "7");
    fixture.provider.reply_next(busy);
    for _ in 0..3 {
        match fixture.deliver().await {
            Err(SinkError::Unavailable { retry_after, .. }) => {
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fixture.fetches(), 1);
    fixture.clock.advance(PAUSE);
    fixture.deliver().await.unwrap();
    assert_eq!(fixture.fetches(), 2);
}

#[tokio::test]
async fn a_new_secret_of_the_client_is_used_by_the_sink_that_has_it() {
    let fixture = Fixture::granting().await;
    // The base64 of `hapax:hunter2-new`.
    let new = "Basic aGFwYXg6aHVudGVyMi1uZXc=";
    fixture.provider.reply_with(move |taken| {
        if taken.header("authorization") == Some(new) {
            return granted(1);
        }
        HttpReply::status(401).body("{\"error\": \"invalid_client\"}")
    });
    let said = postponed(&fixture.deliver().await, "token");
    assert!(said.contains("invalid_client"), "{said}");
    let rotated = fixture.webhook(|it| it.client_secret = "hunter2-new".into());
    deliver(&rotated, any_offer()).await.unwrap();
}

#[tokio::test]
async fn a_token_that_the_endpoint_sends_back_is_not_stored() {
    let fixture = Fixture::granting().await;
    fixture.endpoint.reply_with(|taken| {
        let echo = taken.header("authorization").unwrap_or_default().to_owned();
        HttpReply::status(500).body(echo)
    });
    let outcome = fixture.deliver().await;
    let shown = format!("{outcome:?} {:?}", fixture.webhook);
    assert!(shown.contains("Bearer ***"), "{shown}");
    assert!(!shown.contains("token-1"), "{shown}");
}

#[tokio::test]
async fn the_guard_checks_the_token_endpoint_too() {
    let provider = HttpReceiver::start().await;
    let port = provider.address().port();
    for (host, is_known) in [("127.0.0.1", true), ("localhost", false)] {
        let webhook = sinks::webhook("https://8.8.8.8/", sinks::destination(), |it| {
            it.allow.clear();
            it.oauth = Some(OauthSettings {
                token_url: format!("http://{host}:{port}/token"),
                client_id: "hapax".to_owned(),
                client_secret: SECRET.into(),
                ..OauthSettings::default()
            });
        });
        assert_eq!(webhook.refusal().is_some(), is_known);
        let said = postponed(&deliver(&webhook, any_offer()).await, "token");
        assert!(said.contains("is loopback"), "{said}");
    }
    assert_eq!(provider.connections(), 0);
}

/// A webhook with a token endpoint and an endpoint of the test.
struct Fixture {
    provider: HttpReceiver,
    endpoint: HttpReceiver,
    clock: ManualClock,
    webhook: Webhook,
}

impl Fixture {
    /// The token endpoint grants `token-1`, then `token-2` and so on, each for 300 seconds.
    async fn granting() -> Self {
        let (provider, endpoint) = (HttpReceiver::start().await, HttpReceiver::start().await);
        let last = AtomicU64::new(0);
        provider.reply_with(move |_| granted(last.fetch_add(1, Ordering::SeqCst) + 1));
        let clock = ManualClock::new();
        let webhook = build(&provider, &endpoint, &clock, |_| {});
        Self {
            provider,
            endpoint,
            clock,
            webhook,
        }
    }

    /// Another webhook with the same two endpoints.
    fn webhook(&self, change: impl FnOnce(&mut OauthSettings)) -> Webhook {
        build(&self.provider, &self.endpoint, &self.clock, change)
    }

    async fn deliver(&self) -> Outcome {
        deliver(&self.webhook, any_offer()).await
    }

    /// From now on, the endpoint responds with 401 to every other token.
    fn accept_only(&self, token: &'static str) {
        self.endpoint.reply_with(move |request| {
            let sent = request.header("authorization").unwrap_or_default();
            let is_accepted = sent.strip_prefix("Bearer ") == Some(token);
            HttpReply::status(if is_accepted { 200 } else { 401 })
        });
    }

    fn fetches(&self) -> usize {
        self.provider.received().len()
    }

    /// The header `authorization` of each request to the endpoint.
    fn authorizations(&self) -> Vec<String> {
        let taken = self.endpoint.received();
        let sent = taken.iter().filter_map(|it| it.header("authorization"));
        sent.map(str::to_owned).collect()
    }
}

fn build(
    provider: &HttpReceiver,
    endpoint: &HttpReceiver,
    clock: &ManualClock,
    change: impl FnOnce(&mut OauthSettings),
) -> Webhook {
    let mut oauth = OauthSettings {
        token_url: provider.url("/token"),
        client_id: "hapax".to_owned(),
        client_secret: SECRET.into(),
        ..OauthSettings::default()
    };
    change(&mut oauth);
    let destination = sinks::within(SHORT);
    sinks::webhook_at(clock.clock(), &endpoint.url("/"), destination, |it| {
        it.oauth = Some(oauth);
    })
}

fn granted(number: u64) -> HttpReply {
    let granted = json!({
        "access_token": format!("token-{number}"),
        "token_type": "bearer",
        "expires_in": 300,
    });
    HttpReply::status(200).body(granted.to_string())
}

fn many() -> Vec<Offer> {
    let new = |number: u64| NewEvent::json("order.created", &number);
    (1..=16).map(|number| offer(number, new(number))).collect()
}
