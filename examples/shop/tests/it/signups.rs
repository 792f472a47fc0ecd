//! Tests of signups: one user and one welcome mail per address.

use std::fs;

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    smtp::SmtpReceiver,
    wait::eventually,
};
use tokio::task::JoinSet;

use crate::shop::{
    JSON, PATIENCE, Shop, Store, check_replays, lasting, on_both_stores, problem, refuses,
};

const ANN: &str = r#"{"email":"Ann@x.org","name":"Ann <b>& Co</b>"}"#;

on_both_stores! {
    a_signup_without_a_key_is_one_intent_per_address,
    the_welcome_mail_is_caught_once_and_says_what_it_should,
    the_table_knows_an_address_that_its_key_forgot,
    bad_members_of_a_signup_are_refused_by_name,
    twenty_duplicates_of_one_signup_are_one_person_and_one_mail,
}

async fn a_signup_without_a_key_is_one_intent_per_address(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let first = shop.post("/signups", None, ANN).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert!(
        first
            .header("idempotency-key")
            .unwrap()
            .starts_with("derived:")
    );
    let again = shop
        .post("/signups", None, &ANN.replace("Ann@x.org", "aNN@X.org"))
        .await;
    check_replays(&again, &first);
    let other = shop
        .post("/signups", None, &ANN.replace("Co", "Sons"))
        .await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(shop.received("user.signed_up", 1).await.len(), 1);
}

async fn the_welcome_mail_is_caught_once_and_says_what_it_should(on: Store) {
    let shop = Shop::start(on, &[]).await;
    shop.post("/signups", None, ANN).await;
    shop.post("/signups", None, ANN).await;
    eventually(PATIENCE, async || !shop.mails().is_empty()).await;
    let event = shop.received("user.signed_up", 1).await[0]["event_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mails = shop.mails();
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].file_stem().unwrap().to_str(), Some(event.as_str()));
    let mail = fs::read_to_string(&mails[0]).unwrap();
    assert!(
        mail.contains("To: ") && mail.contains("Ann@x.org"),
        "{mail}"
    );
    assert!(mail.contains("Subject: "), "{mail}");
    assert!(
        mail.contains("Ann &lt;b&gt;&amp; Co"),
        "markup in a name must be escaped: {mail}"
    );
}

async fn the_table_knows_an_address_that_its_key_forgot(on: Store) {
    let shop = Shop::start(on, &[]).await;
    assert_eq!(shop.post("/signups", Some("a"), ANN).await.status, 201);
    let taken = shop.post("/signups", Some("b"), ANN).await;
    problem(&taken, 409, "CONFLICT.signup.exists");
    assert_eq!(
        shop.post_as("demo-bob", "/signups", Some("b"), ANN)
            .await
            .status,
        201
    );
}

async fn bad_members_of_a_signup_are_refused_by_name(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for email in [
        "ann",
        "ann@x",
        "a b@x.org",
        "",
        "ann@x.org\\r\\nBcc: eve@y.org",
    ] {
        let body = format!(r#"{{"email":"{email}","name":"Ann"}}"#);
        refuses(&shop.post("/signups", None, &body).await, "email");
    }
    refuses(
        &shop.post("/signups", None, r#"{"name":"Ann"}"#).await,
        "email",
    );
    for name in ["", "A\\nB"] {
        let body = format!(r#"{{"email":"ann@x.org","name":"{name}"}}"#);
        refuses(&shop.post("/signups", None, &body).await, "name");
    }
    let extra = r#"{"email":"ann@x.org","name":"Ann","role":"admin"}"#;
    refuses(&shop.post("/signups", None, extra).await, "role");
}

async fn twenty_duplicates_of_one_signup_are_one_person_and_one_mail(on: Store) {
    let server = SmtpReceiver::start().await;
    let url = format!("smtp://{}", server.address());
    let shop = Shop::start(on, &["--smtp", &url, "--wait", "20s"]).await;
    let answers = at_once(&shop).await;
    let first = lasting(&answers[0]);
    assert_eq!(first.0, 201, "{}", answers[0].text());
    assert!(answers.iter().all(|answer| lasting(answer) == first));
    let stored = |answer: &&HttpResponse| answer.header("idempotency-status") == Some("stored");
    assert_eq!(answers.iter().filter(stored).count(), 1);
    // Bob's mail is sent after all mails to Ann. By then, a duplicate would have arrived.
    let bob = r#"{"email":"bob@x.org","name":"Bob"}"#;
    assert_eq!(shop.post("/signups", None, bob).await.status, 201);
    let mails = server.mails_at_least(2).await;
    let to: Vec<_> = mails.iter().map(|mail| mail.to.concat()).collect();
    let ann = to
        .iter()
        .filter(|to| to.to_lowercase().contains("ann@x.org"));
    assert_eq!((ann.count(), mails.len()), (1, 2), "{to:?}");
    let events = shop.received("user.signed_up", 2).await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event["deliveries"] == 1));
}

/// Sends the signup from twenty clients, each with a separate connection and another spelling of
/// the address.
async fn at_once(shop: &Shop) -> Vec<HttpResponse> {
    let mut sent = JoinSet::new();
    for number in 0..20 {
        let url = shop.url("/signups");
        let email = if number % 2 == 0 {
            "Ann@x.org"
        } else {
            "aNN@X.org"
        };
        sent.spawn(async move {
            let body = ANN.replace("Ann@x.org", email);
            let headers = [JSON, ("authorization", "Bearer demo-alice")];
            HttpClient::new().post(&url, &headers, body).await.unwrap()
        });
    }
    sent.join_all().await
}
