//! Headers and HTTP basic: credentials that are the same in every request.

use hapax_sinks::webhook::{BasicSettings, Webhook, WebhookSettings};
use hapax_testkit::http::{HttpReceiver, HttpReply};

use crate::{
    events::{any_offer, deliver, error_type},
    sinks,
};

#[tokio::test]
async fn configured_headers_and_a_login_are_in_every_request_beside_the_signature() {
    let receiver = HttpReceiver::start().await;
    let webhook = with_secrets(&receiver);
    for _ in 0..2 {
        deliver(&webhook, any_offer()).await.unwrap();
    }
    for taken in receiver.received() {
        assert_eq!(taken.header("x-api-key"), Some("hunter2-key"));
        let login = "Basic aGFwYXg6aHVudGVyMi1wYXNzd29yZA==";
        assert_eq!(taken.header("authorization"), Some(login));
        assert!(taken.headers.contains_key("webhook-signature"));
        assert_eq!(taken.headers["content-type"], "application/json");
    }
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn a_secret_that_the_endpoint_sends_back_is_not_stored() {
    for status in [200, 400, 410, 500] {
        let receiver = HttpReceiver::start().await;
        receiver.reply_with(move |taken| {
            let echo = format!("{:?} hunter2-password", taken.headers);
            HttpReply::status(status).body(echo)
        });
        let outcome = deliver(&with_secrets(&receiver), any_offer()).await;
        let shown = format!("{outcome:?}");
        assert!(shown.contains("***"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("aGFwYXg6"), "{shown}");
    }
}

#[test]
fn neither_the_settings_nor_the_sink_print_a_secret() {
    let mut printed = String::new();
    let webhook = sinks::webhook("https://example.com/", sinks::destination(), |settings| {
        add_secrets(settings);
        printed = format!("{settings:?} {:?}", settings.basic);
        printed += &serde_json::to_string(settings).unwrap();
    });
    let printed = format!("{printed} {webhook:?}");
    assert!(printed.contains("***"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[tokio::test]
async fn without_tls_a_secret_does_not_leave_the_permitted_networks() {
    let webhook = sinks::webhook("http://8.8.8.8/", sinks::destination(), |it| {
        it.headers.insert("x-api-key".to_owned(), "hunter2".into());
    });
    let outcome = deliver(&webhook, any_offer()).await;
    assert_eq!(error_type(outcome), "blocked");
    let open = sinks::webhook("http://8.8.8.8/", sinks::destination(), |_| {});
    assert_eq!(open.refusal(), None);
}

fn with_secrets(receiver: &HttpReceiver) -> Webhook {
    sinks::webhook(&receiver.url("/"), sinks::destination(), add_secrets)
}

fn add_secrets(settings: &mut WebhookSettings) {
    let headers = &mut settings.headers;
    headers.insert("X-Api-Key".to_owned(), "hunter2-key".into());
    settings.basic = Some(BasicSettings {
        user: "hapax".to_owned(),
        password: "hunter2-password".into(),
    });
}
