//! Tests of two instances with one database: two processes, two ports, one effect.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpResponse},
    wait::{Patience, eventually},
};
use http::Method;
use tokio::time::Instant;

use crate::shop::{Home, JSON, ORDER, PATIENCE, Shop, Store, check_replays, lasting, problem};

/// The maximum time until events are delivered after their owner was killed.
const TAKE_OVER: Duration = Duration::from_secs(10);

#[tokio::test]
async fn two_hundred_duplicates_at_two_instances_are_one_order_and_one_answer() {
    let shops = two(&["--wait", "20s"]).await;
    let headers = [JSON, ALICE, ("idempotency-key", "same")];
    let requests = (0..200).map(|number| (number % 2, ORDER.to_owned(), headers));
    let answers = at_once(&shops, Method::POST, "/orders", requests).await;
    let first = lasting(&answers[0]);
    assert_eq!(first.0, 201, "{}", answers[0].text());
    assert!(answers.iter().all(|answer| lasting(answer) == first));
    let stored = |answer: &&HttpResponse| answer.header("idempotency-status") == Some("stored");
    assert_eq!(answers.iter().filter(stored).count(), 1);
    for shop in &shops {
        let orders = shop.get("/orders").await.json().unwrap();
        assert_eq!(orders["items"].as_array().unwrap().len(), 1);
    }
    let events = received(&shops, "order.created", 1).await;
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn refunds_at_two_instances_never_exceed_the_charge() {
    let shops = two(&[]).await;
    let payment = r#"{"amount":1000,"currency":"EUR","card":"tok_ok"}"#;
    let paid = shops[0].post("/payments", Some("p"), payment).await;
    let charge = paid.json().unwrap()["id"].as_str().unwrap().to_owned();
    let body = format!(r#"{{"charge_id":"{charge}","amount":30}}"#);
    let keys: Vec<String> = (0..60).map(|number| format!("r-{number}")).collect();
    let requests = keys.iter().enumerate().map(|(number, key)| {
        let headers = [JSON, ALICE, ("idempotency-key", key.as_str())];
        (number % 2, body.clone(), headers)
    });
    let mut answers = at_once(&shops, Method::POST, "/refunds", requests).await;
    // If the provider is slow under load, the outcome of a refund is unknown, and the client sends
    // it again.
    let open =
        |answer: &HttpResponse| answer.status >= 500 || answer.header("retry-after").is_some();
    eventually(3 * PATIENCE, async || {
        for (number, answer) in answers.iter_mut().enumerate() {
            if open(answer) {
                let key = Some(keys[number].as_str());
                *answer = shops[number % 2].post("/refunds", key, &body).await;
            }
        }
        !answers.iter().any(open)
    })
    .await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 33, "1000 allows 33 refunds of 30");
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        problem(refused, 409, "CONFLICT.refund.exceeds_charge");
        assert!(
            refused.header("retry-after").is_none(),
            "the rejection is final"
        );
    }
    let ledger = shops[1].get(&format!("/ledger?charge_id={charge}")).await;
    let ledger = ledger.json().unwrap();
    let entries = ledger["entries"].as_array().unwrap().iter();
    let refunds = entries.filter(|entry| entry["kind"] == "refund");
    let amounts: Vec<_> = refunds.map(|it| it["amount"].as_i64().unwrap()).collect();
    assert_eq!((amounts.len(), amounts.iter().sum()), (33, 990));
    assert_eq!(received(&shops, "refund.succeeded", 33).await.len(), 33);
}

#[tokio::test]
async fn of_many_changes_at_two_instances_that_saw_one_version_one_happens() {
    let shops = two(&[]).await;
    let order = shops[0].post("/orders", Some("o"), ORDER).await;
    let path = order.header("location").unwrap().to_owned();
    for version in 1..=5 {
        let seen = format!("\"{version}\"");
        let requests = (0..20).map(|number| {
            let headers = [JSON, ALICE, ("if-match", seen.as_str())];
            let amount = 1000 * version + number;
            let body = ORDER.replace("500", &amount.to_string());
            (usize::try_from(number % 2).unwrap(), body, headers)
        });
        let answers = at_once(&shops, Method::PUT, &path, requests).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 200);
        assert_eq!(made.len(), 1, "version {version}");
        assert!(refused.iter().all(|answer| answer.status == 412));
        let now = shops[1].get(&path).await;
        assert_eq!(now.body, made[0].body);
    }
    assert_eq!(received(&shops, "order.updated", 5).await.len(), 5);
}

#[tokio::test]
async fn an_address_signs_up_once_at_two_instances() {
    let shops = two(&[]).await;
    let ann = r#"{"email":"ann@example.org","name":"Ann"}"#;
    let keys: Vec<String> = (0..20).map(|number| format!("s-{number}")).collect();
    let requests = keys.iter().enumerate().map(|(number, key)| {
        let headers = [JSON, ALICE, ("idempotency-key", key.as_str())];
        (number % 2, ann.to_owned(), headers)
    });
    let answers = at_once(&shops, Method::POST, "/signups", requests).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 1);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        problem(refused, 409, "CONFLICT.signup.exists");
    }
    assert_eq!(received(&shops, "user.signed_up", 1).await.len(), 1);
}

#[tokio::test]
async fn an_answer_of_one_instance_is_replayed_by_the_other() {
    let shops = two(&[]).await;
    let first = shops[0].post("/orders", Some("k"), ORDER).await;
    let again = shops[1].post("/orders", Some("k"), ORDER).await;
    check_replays(&again, &first);
    let other = ORDER.replace("500", "501");
    let other = shops[1].post("/orders", Some("k"), &other).await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn one_instance_carries_and_the_other_takes_over_when_it_is_killed() {
    let receiver = HttpReceiver::start().await;
    let [one, other] = two(&webhook(&receiver.url("/hook"))).await;
    let before = one.post("/orders", Some("1"), ORDER).await;
    assert_eq!(before.status, 201);
    receiver.received_at_least(1).await;
    let [mut owner, waiting] = by_owner([one, other]).await;
    owner.signal("KILL");
    owner.ended().await;
    let killed = Instant::now();
    let after = waiting.post("/orders", Some("2"), ORDER).await;
    assert_eq!(after.status, 201, "{}", after.text());
    let id = after.json().unwrap()["id"].as_str().unwrap().to_owned();
    let is_there = || {
        let deliveries = receiver.received();
        let mut bodies = deliveries
            .iter()
            .map(|it| String::from_utf8_lossy(&it.body));
        bodies.any(|body| body.contains(&id))
    };
    eventually(PATIENCE, async || is_there()).await;
    assert!(killed.elapsed() < TAKE_OVER, "{:?}", killed.elapsed());
    eventually(PATIENCE, async || relay_of(&waiting).await == "running").await;
    check_quiet(&waiting);
}

#[tokio::test]
async fn one_instance_takes_over_when_the_other_stops() {
    let receiver = HttpReceiver::start().await;
    let [one, other] = two(&webhook(&receiver.url("/hook"))).await;
    one.post("/orders", Some("1"), ORDER).await;
    receiver.received_at_least(1).await;
    let [owner, waiting] = by_owner([one, other]).await;
    owner.stop().await;
    waiting.post("/orders", Some("2"), ORDER).await;
    let stopped = Instant::now();
    let deliveries = receiver.received_at_least(2).await;
    assert!(stopped.elapsed() < TAKE_OVER, "{:?}", stopped.elapsed());
    let ids: HashSet<_> = deliveries
        .iter()
        .map(|it| it.header("webhook-id"))
        .collect();
    assert_eq!((deliveries.len(), ids.len()), (2, 2), "none came twice");
}

#[tokio::test]
async fn instances_that_start_at_once_on_an_empty_database_all_start() {
    let home = Home::fresh(Store::Postgres).await;
    let starts = (0..4).map(|_| {
        let home = home.beside();
        tokio::task::spawn_blocking(move || Shop::start_in(home, &[]))
    });
    for shop in join_all(starts).await {
        let orders = shop.unwrap().get("/orders").await;
        assert_eq!(orders.status, 200, "{}", orders.text());
    }
}

const ALICE: (&str, &str) = ("authorization", "Bearer demo-alice");

/// Starts two instances. The second starts after the first one owns the demo's destination.
/// Returns when the relay of the second one is running.
async fn two(flags: &[&str]) -> [Shop; 2] {
    let home = Home::with_providers(Store::Postgres).await;
    let first = Shop::start_in(home.clone(), flags);
    eventually(PATIENCE, async || {
        let epoch = first
            .metric("hapax_relay_lease_epoch{destination=\"demo\"")
            .await;
        epoch > 0.0
    })
    .await;
    let second = Shop::start_in(home.beside(), flags);
    eventually(PATIENCE, async || relay_of(&second).await == "running").await;
    [first, second]
}

/// Returns the instance that delivers to the webhook first, then the other one. An attempt is
/// counted when it has ended.
async fn by_owner([one, other]: [Shop; 2]) -> [Shop; 2] {
    let patience = Patience::within(PATIENCE);
    loop {
        if carries_the_webhook(&one).await {
            return [one, other];
        }
        if carries_the_webhook(&other).await {
            return [other, one];
        }
        patience.pause().await;
    }
}

/// Whether this instance has delivered to the webhook. Only one instance owns it at a time.
async fn carries_the_webhook(shop: &Shop) -> bool {
    let attempts = "hapax_relay_attempts_total{destination=\"webhook-";
    shop.metric(attempts).await > 0.0
}

fn webhook(url: &str) -> [&str; 4] {
    ["--webhook", url, "--allow-net", "127.0.0.0/8"]
}

/// The state of an instance's relay, or an empty string if the instance is not ready.
async fn relay_of(shop: &Shop) -> String {
    let ready = shop.send(Method::GET, "/readyz", &[], "").await;
    if ready.status != 200 {
        return String::new();
    }
    ready.json().unwrap()["relay"].as_str().unwrap().to_owned()
}

/// Checks that an instance does not repeat its log entries about destinations that it does not own.
#[track_caller]
fn check_quiet(shop: &Shop) {
    let log = shop.log();
    // An instance logs a destination that it does not own once, and again only after it has owned
    // it.
    let mut stood_by = HashSet::new();
    for line in log.lines() {
        let place = line.split("destination=").nth(1);
        let place = place.and_then(|it| it.split_whitespace().next());
        if line.contains("is not served here") {
            assert!(stood_by.insert(place), "{log}");
        } else if line.contains("the destination is taken") {
            stood_by.remove(&place);
        }
    }
    assert!(!log.contains("ERROR"), "{log}");
}

/// Sends requests to the instances at once, and returns the responses in the order of the requests.
async fn at_once<'a>(
    shops: &[Shop; 2],
    method: Method,
    path: &str,
    requests: impl Iterator<Item = (usize, String, [(&'a str, &'a str); 3])>,
) -> Vec<HttpResponse> {
    let client = HttpClient::new();
    let mut sent = Vec::new();
    for (shop, body, headers) in requests {
        let (client, method, url) = (client.clone(), method.clone(), shops[shop].url(path));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        sent.push(tokio::spawn(async move {
            let headers = headers.each_ref();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
            let answer = client.send(method, &url, &headers, body.into()).await;
            answer.unwrap()
        }));
    }
    let answers = join_all(sent).await.into_iter();
    answers.map(|answer| answer.unwrap()).collect()
}

/// Waits until the demo's receivers have this many events of this type, and returns their ids.
async fn received(shops: &[Shop; 2], kind: &str, least: usize) -> HashSet<String> {
    let mut found = HashSet::new();
    eventually(PATIENCE, async || {
        for shop in shops {
            let events = shop.received_now(kind).await;
            assert!(events.iter().all(|event| event["effects"] == 1));
            found.extend(events.iter().map(|event| event["event_id"].to_string()));
        }
        found.len() >= least
    })
    .await;
    found
}
