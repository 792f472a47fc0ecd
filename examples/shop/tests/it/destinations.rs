//! Tests of webhook and mail destinations: signatures, network policy, and isolation.

use hapax::{
    Timestamp,
    signature::{self, Received, TOLERANCE, Verifier, verify},
};
use hapax_testkit::{http::HttpReceiver, smtp::SmtpReceiver, wait::eventually};

use crate::shop::{ORDER, PATIENCE, Shop, Store, on_both_stores};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ANN: &str = r#"{"email":"ann@x.org","name":"Ann"}"#;

on_both_stores! {
    a_webhook_gets_every_event_signed,
    a_webhook_on_a_private_address_gets_nothing_unless_it_is_opened,
    a_dead_webhook_and_a_dead_mail_server_park_their_own_deliveries_alone,
    mail_goes_to_the_server_that_was_named,
    events_written_without_a_relay_go_out_once_one_runs,
}

async fn a_webhook_gets_every_event_signed(on: Store) {
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/hook");
    let flags = [
        "--webhook",
        &url,
        "--webhook-secret",
        SECRET,
        "--allow-net",
        "127.0.0.0/8",
    ];
    let shop = Shop::start(on, &flags).await;
    shop.post("/orders", Some("k"), ORDER).await;
    let sent = receiver.received_at_least(1).await.remove(0);
    let text = |name| sent.header(name).unwrap();
    let message = Received {
        id: text(signature::ID_HEADER),
        timestamp: text(signature::TIMESTAMP_HEADER),
        signature: text(signature::SIGNATURE_HEADER),
        body: &sent.body,
    };
    let stamp: i64 = message.timestamp.parse().unwrap();
    let now = Timestamp::from_millis(stamp * 1000);
    verify(
        &message,
        &[Verifier::V1(SECRET.parse().unwrap())],
        now,
        TOLERANCE,
    )
    .unwrap();
}

async fn a_webhook_on_a_private_address_gets_nothing_unless_it_is_opened(on: Store) {
    let receiver = HttpReceiver::start().await;
    let shop = Shop::start(on, &["--webhook", &receiver.url("/hook")]).await;
    shop.post("/orders", Some("k"), ORDER).await;
    shop.received("order.created", 1).await;
    let failed = "hapax_relay_attempts_total{destination=\"webhook-127.0.0.1";
    eventually(PATIENCE, async || shop.metric(failed).await > 0.0).await;
    assert!(receiver.received().is_empty());
}

async fn a_dead_webhook_and_a_dead_mail_server_park_their_own_deliveries_alone(on: Store) {
    let flags = [
        "--webhook",
        "http://127.0.0.1:9/",
        "--allow-net",
        "127.0.0.0/8",
        "--smtp",
        "smtp://127.0.0.1:9",
    ];
    let shop = Shop::start(on, &flags).await;
    shop.post("/signups", None, ANN).await;
    shop.post("/orders", Some("k"), ORDER).await;
    shop.received("user.signed_up", 1).await;
    shop.received("order.created", 1).await;
    for destination in ["mail", "webhook-127.0.0.1"] {
        let parked = format!("hapax_relay_parked_events{{destination=\"{destination}");
        eventually(PATIENCE, async || shop.metric(&parked).await > 0.0).await;
    }
    assert!(
        shop.metric("hapax_relay_parked_events{destination=\"demo\"")
            .await
            == 0.0
    );
}

async fn mail_goes_to_the_server_that_was_named(on: Store) {
    let server = SmtpReceiver::start().await;
    let url = format!("smtp://{}", server.address());
    let shop = Shop::start(on, &["--smtp", &url]).await;
    shop.post("/signups", None, ANN).await;
    let mails = server.mails_at_least(1).await;
    assert!(mails[0].text().contains("ann@x.org"));
    assert!(shop.mails().is_empty());
}

async fn events_written_without_a_relay_go_out_once_one_runs(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    shop.post("/orders", Some("k"), ORDER).await;
    assert!(shop.received_now("order.created").await.is_empty());
    assert_eq!(shop.get("/readyz").await.json().unwrap()["relay"], "off");
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    assert_eq!(shop.received("order.created", 1).await.len(), 1);
}
