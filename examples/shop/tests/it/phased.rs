//! Tests of payments whose owner is killed, or paused for longer than its lease: one charge is
//! made.

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    wait::eventually,
};
use http::Method;
use tokio::task::JoinHandle;

use crate::shop::{
    Home, JSON, PATIENCE, PAYMENT, SLOW, Shop, Store, check_replays, command, lasting,
    on_both_stores,
};

/// The failpoints of a payment: before the call to the provider, before the charge is recorded, and
/// before the response is stored.
const PLACES: [&str; 3] = [
    "payments.call.before:1",
    "payments.call.after:1",
    "payments.charged:1",
];

on_both_stores! {
    a_payment_that_was_cut_off_is_finished_by_its_retry,
    a_payment_that_was_cut_off_is_finished_without_its_client,
    a_payment_whose_client_ran_out_of_time_is_finished_by_its_retry,
}

async fn a_payment_that_was_cut_off_is_finished_by_its_retry(on: Store) {
    for place in PLACES {
        let home = die_at(on, place).await;
        let shop = Shop::start_in(home, &["--lease", "10s"]);
        let answer = shop.until_answered("/payments", "p", PAYMENT).await;
        assert_eq!(answer.header("idempotency-status"), Some("stored"));
        check_once(&shop, PAYMENT, &answer).await;
    }
}

async fn a_payment_that_was_cut_off_is_finished_without_its_client(on: Store) {
    for place in PLACES {
        let home = die_at(on, place).await;
        let shop = Shop::start_in(home, &["--lease", "1s"]);
        eventually(PATIENCE, async || {
            let completed =
                r#"hapax_idempotency_takeovers_total{operation="POST /payments",by="completer"}"#;
            shop.metric(completed).await > 0.0 && shop.entries("").await.len() == 1
        })
        .await;
        let answer = shop.until_answered("/payments", "p", PAYMENT).await;
        assert_eq!(answer.header("idempotency-status"), Some("replayed"));
        check_once(&shop, PAYMENT, &answer).await;
    }
}

async fn a_payment_whose_client_ran_out_of_time_is_finished_by_its_retry(on: Store) {
    let home = Home::with_providers(on).await;
    let shop = Shop::start_in(home, &["--wait", "10s"]);
    let headers = [
        JSON,
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", "p"),
        ("x-request-timeout", "500"),
    ];
    let late = shop.send(Method::POST, "/payments", &headers, SLOW).await;
    crate::shop::problem(&late, 504, "DEPENDENCY.timeout");
    let answer = shop.post("/payments", Some("p"), SLOW).await;
    assert_eq!(
        (answer.status, answer.header("idempotency-status")),
        (201, Some("stored"))
    );
    check_once(&shop, SLOW, &answer).await;
}

#[tokio::test]
async fn an_owner_that_wakes_up_after_the_retry_went_on_commits_nothing() {
    let (asleep, awake, stalled) = owner_asleep(&["--lease", "10s", "--wait", "20s"]).await;
    let answer = awake.post("/payments", Some("p"), SLOW).await;
    assert_eq!(
        (answer.status, answer.header("idempotency-status")),
        (201, Some("stored"))
    );
    check_fenced(&asleep, &awake, stalled, &answer).await;
}

#[tokio::test]
async fn an_owner_that_wakes_up_after_the_completer_went_on_commits_nothing() {
    let (asleep, awake, stalled) = owner_asleep(&["--lease", "1s", "--wait", "20s"]).await;
    let client = awake.home().database().client().await;
    eventually(PATIENCE, async || {
        let row = client.query_one("SELECT state FROM hapax.idempotency_key", &[]);
        row.await.unwrap().get::<_, &str>(0) == "completed"
    })
    .await;
    let answer = awake.post("/payments", Some("p"), SLOW).await;
    assert_eq!(answer.header("idempotency-status"), Some("replayed"));
    check_fenced(&asleep, &awake, stalled, &answer).await;
}

#[tokio::test]
async fn a_slow_payment_is_its_owners_as_long_as_it_lives() {
    let home = Home::with_providers(Store::Postgres).await;
    // The lease is shorter than the payment, but long enough for a delayed renewal.
    let slow = Shop::start_in(home.clone(), &["--lease", "2500ms"]);
    let other = Shop::start_in(home.beside(), &["--lease", "2500ms", "--wait", "20s"]);
    let paying = pay(&slow, SLOW);
    provider_charged(&home).await;
    let answer = other.post("/payments", Some("p"), SLOW).await;
    assert_eq!(answer.header("idempotency-status"), Some("replayed"));
    let first = paying.await.unwrap().unwrap();
    assert_eq!(lasting(&first), lasting(&answer));
    check_count(takeovers(&slow).await + takeovers(&other).await, 0);
    check_once(&other, SLOW, &answer).await;
}

/// Kills a shop at this failpoint by its first payment, and returns its folder and database.
async fn die_at(on: Store, place: &str) -> Home {
    let home = Home::with_providers(on).await;
    let mut command = command(&home, &["--lease", "1s"]);
    command.env("HAPAX_FAILPOINT", place);
    let mut shop = Shop::spawn(command, home.clone());
    let paying = pay(&shop, PAYMENT);
    let (status, _) = shop.ended().await;
    assert!(!status.success(), "{place}");
    assert!(
        paying.await.unwrap().is_err(),
        "the client must get no response"
    );
    home
}

/// Two shops on one database. The owner of a slow payment is paused, and the other has these flags.
async fn owner_asleep(flags: &[&str]) -> (Shop, Shop, Paying) {
    let home = Home::with_providers(Store::Postgres).await;
    let asleep = Shop::start_in(home.clone(), &["--lease", "1s", "--wait", "20s"]);
    let awake = Shop::start_in(home.beside(), flags);
    let paying = pay(&asleep, SLOW);
    provider_charged(&home).await;
    asleep.signal("STOP");
    (asleep, awake, paying)
}

/// Continues the paused owner, whose client must get the response of the new owner.
async fn check_fenced(asleep: &Shop, awake: &Shop, stalled: Paying, answer: &HttpResponse) {
    asleep.signal("CONT");
    let late = stalled.await.unwrap().unwrap();
    check_replays(&late, answer);
    check_count(takeovers(awake).await, 1);
    let fenced = r#"hapax_idempotency_fenced_total{operation="POST /payments"}"#;
    check_count(asleep.metric(fenced).await, 1);
    check_once(awake, SLOW, answer).await;
    let client = awake.home().database().client().await;
    let row = "SELECT epoch, state, request IS NULL FROM hapax.idempotency_key";
    let row = client.query_one(row, &[]).await.unwrap();
    assert_eq!(
        (row.get(0), row.get(1), row.get(2)),
        (2_i64, "completed", true)
    );
}

/// Checks that there is one charge at the provider, one row, one entry and one event, and that this
/// response is replayed.
async fn check_once(shop: &Shop, payment: &str, answer: &HttpResponse) {
    let again = shop.post("/payments", Some("p"), payment).await;
    assert_eq!(lasting(&again), lasting(answer));
    let charge = answer.json().unwrap()["id"].as_str().unwrap().to_owned();
    let entries = shop.entries("").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(
        (&entries[0]["charge_id"], &entries[0]["amount"]),
        (&charge.as_str().into(), &900.into())
    );
    let charges = shop.home().providers().made("charge").await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    assert_eq!(charges[0]["id"], charge.as_str());
    for (table, condition) in [
        ("shop_charge", "true"),
        ("{outbox}", "type = 'payment.succeeded'"),
    ] {
        assert_eq!(count(&shop.home(), table, condition).await, 1, "{table}");
    }
}

/// Counts rows directly in the database.
pub(crate) async fn count(home: &Home, table: &str, condition: &str) -> i64 {
    let outbox = if home.is_in_a_file() {
        "hapax_outbox_event"
    } else {
        "hapax.outbox_event"
    };
    let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
    home.number(&sql.replace("{outbox}", outbox)).await
}

/// Waits until the provider has made the charge.
async fn provider_charged(home: &Home) {
    eventually(PATIENCE, async || {
        home.providers().made("charge").await.len() == 1
    })
    .await;
}

/// Checks the value of a metric.
#[track_caller]
fn check_count(found: f64, expected: u32) {
    assert!(
        (found - f64::from(expected)).abs() < 0.5,
        "{found}, not {expected}"
    );
}

async fn takeovers(shop: &Shop) -> f64 {
    shop.metric("hapax_idempotency_takeovers_total").await
}

type Paying = JoinHandle<Result<HttpResponse, String>>;

/// Pays as alice, and returns the result, which may be an error.
fn pay(shop: &Shop, body: &'static str) -> Paying {
    let url = shop.url("/payments");
    tokio::spawn(async move {
        let headers = [
            JSON,
            ("authorization", "Bearer demo-alice"),
            ("idempotency-key", "p"),
        ];
        let client = HttpClient::new();
        let sent = client.send(Method::POST, &url, &headers, body.into()).await;
        sent.map_err(|error| error.to_string())
    })
}
