//! Tests of the clients against real providers, and against servers with scripted responses.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use hapax::{
    Random,
    event::Headers,
    saga::{Outcome, Refusal},
};
use hapax_testkit::{
    assert_matches,
    http::{HttpReceiver, HttpReply},
};
use http::Uri;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{
    Address, CallError, Found, Item, KEY_REUSED, Label, Made, Operation, Order, Parcel, Payments,
    Settled, Shipping, Wanted, confirmed, settle,
};

const ORDER: Order<'_> = Order {
    card: "tok_ok",
    amount: 500,
    currency: "EUR",
};

/// Both providers, each on its own port.
struct Far {
    payment: Payments,
    shipping: Shipping,
    _folder: TempDir,
}

#[tokio::test]
async fn what_was_paid_is_done_and_found_under_its_key() {
    let far = far().await;
    let pay = &far.payment;
    let authorized = done(pay.authorize(label("a"), ORDER).await);
    let captured = done(pay.capture(label("b"), &authorized.id, 400).await);
    let charged = done(pay.charge(label("c"), ORDER).await);
    done(pay.refund(label("d"), &charged.id, 100).await);
    let refunded = done(pay.refund(label("e"), &captured.id, 400).await);
    let other = done(pay.authorize(label("f"), ORDER).await);
    let voided = done(pay.void(label("g"), &other.id, 500).await);
    for (key, wanted, made) in [
        ("a", Wanted::authorization(ORDER), &authorized),
        ("b", Wanted::capture(400), &captured),
        ("c", Wanted::charge(ORDER), &charged),
        ("e", Wanted::refund(400), &refunded),
        ("g", Wanted::void(500), &voided),
    ] {
        let found = pay.look_up(label(key), wanted).await;
        assert!(
            matches!(&found, Found::Done(found) if found == made),
            "{found:?}"
        );
    }
    let absent = pay.look_up(label("z"), Wanted::capture(1)).await;
    assert_matches!(absent, Found::Absent);
    let again = pay.capture(label("h"), &authorized.id, 1).await;
    refused(again, "captured");
    refused(pay.void(label("i"), &other.id, 500).await, "voided");
    let beyond = pay.refund(label("j"), &charged.id, 401).await;
    refused(beyond, "exceeds");
}

#[tokio::test]
async fn what_was_shipped_is_done_and_found_under_its_key() {
    let far = far().await;
    let (here, nowhere) = (address("FR"), address("ZZ"));
    let items = [Item {
        sku: "sku_tea".to_owned(),
        quantity: 2,
    }];
    let parcel = |address| Parcel {
        address,
        items: &items,
    };
    let find = |key| far.shipping.look_up(label(key), Wanted::SHIPMENT);
    let shipped = done(far.shipping.ship(label("s"), parcel(&here)).await);
    assert!(matches!(find("s").await, Found::Done(found) if found == shipped));
    done(far.shipping.cancel(label("x"), &shipped.id).await);
    let undeliverable = far.shipping.ship(label("t"), parcel(&nowhere)).await;
    refused(undeliverable, "undeliverable");
    let found = find("t").await;
    assert!(matches!(found, Found::Refused(refusal) if refusal.code == "undeliverable"));
}

#[tokio::test]
async fn a_refusal_stands_under_its_key_and_a_key_has_one_request() {
    let far = far().await;
    let declined = Order {
        card: "tok_declined",
        ..ORDER
    };
    refused(far.payment.charge(label("c"), declined).await, "declined");
    let wanted = Wanted::charge(declined);
    let found = far.payment.look_up(label("c"), wanted).await;
    assert!(matches!(found, Found::Refused(refusal) if refusal.code == "declined"));
    refused(far.payment.charge(label("c"), ORDER).await, KEY_REUSED);
}

#[tokio::test]
async fn a_call_is_over_when_the_provider_says_so_or_it_never_went_out() {
    let far = far().await;
    for (card, is_over) in [
        ("tok_timeout_applied", false),
        ("tok_timeout_not_applied", false),
        ("tok_5xx", true),
    ] {
        let order = Order { card, ..ORDER };
        let called = far.payment.charge(label(card), order).await;
        assert_eq!(unknown(called), is_over, "{card}");
    }
    let key = label("tok_timeout_applied");
    let found = far.payment.look_up(key, Wanted::charge(ORDER)).await;
    assert_matches!(found, Found::Done(_));
    let gone = payments("http://127.0.0.1:1");
    assert!(unknown(gone.charge(label("c"), ORDER).await));
    let found = gone.look_up(label("c"), Wanted::charge(ORDER)).await;
    assert_matches!(found, Found::Unknown(_));
}

#[tokio::test]
async fn a_duplicate_is_done_and_says_so() {
    let body = r#"{"code":"duplicate","detail":"d","id":"ch_1",
        "existing":{"id":"ch_1","kind":"charge","amount":500,"currency":"EUR"}}"#;
    let charged = done(told(HttpReply::status(409).body(body)).await);
    assert!(charged.is_duplicate);
    assert_eq!(charged.id, "ch_1");
}

#[tokio::test]
async fn what_is_neither_a_result_nor_a_refusal_is_unknown() {
    let refusal = r#"{"code":"declined","detail":"d"}"#;
    let running = r#"{"code":"CONFLICT.idempotency.in_progress","detail":"d"}"#;
    let conflict = || HttpReply::status(409);
    for (reply, is_over) in [
        (HttpReply::status(429).body(refusal), true),
        (HttpReply::status(500).body(refusal), true),
        (HttpReply::status(503).body(refusal), true),
        (HttpReply::status(404).body("nothing here"), false),
        (HttpReply::status(500), false),
        (HttpReply::status(503).body("<html>"), false),
        (HttpReply::status(502).body(refusal), false),
        (HttpReply::status(504), false),
        (HttpReply::closed(), false),
        (conflict().body(running), false),
        (conflict().header("retry-after", "1").body(refusal), false),
        (conflict().body(r#"{"code":"duplicate"}"#), false),
        (HttpReply::status(201).body("{}"), false),
        (HttpReply::status(201).large_body(1 << 20), false),
        (
            HttpReply::status(201).endless_body(Duration::from_millis(200)),
            false,
        ),
    ] {
        let shown = format!("{reply:?}");
        assert_eq!(unknown(told(reply).await), is_over, "{shown}");
    }
}

#[tokio::test]
async fn what_was_made_counts_where_it_is_what_was_asked_for() {
    let receiver = HttpReceiver::start().await;
    let pay = payments(&receiver.url(""));
    for (kind, amount, currency) in [
        ("refund", 500, "EUR"),
        ("charge", 499, "EUR"),
        ("charge", 500, "USD"),
    ] {
        answer(&receiver, kind, amount, currency);
        assert!(!unknown(pay.charge(label("c"), ORDER).await));
        let found = pay.look_up(label("c"), Wanted::charge(ORDER)).await;
        assert_matches!(found, Found::Unknown(_));
    }
    answer(&receiver, "authorization", 499, "EUR");
    assert!(!unknown(pay.authorize(label("c"), ORDER).await));
    answer(&receiver, "capture", 399, "EUR");
    assert!(!unknown(pay.capture(label("c"), "auth_1", 400).await));
    answer(&receiver, "refund", 401, "EUR");
    assert!(!unknown(pay.refund(label("c"), "ch_1", 400).await));
    answer(&receiver, "void", 1, "EUR");
    assert!(!unknown(pay.void(label("c"), "auth_1", 400).await));
}

#[tokio::test]
async fn a_404_without_a_code_says_nothing_about_a_key() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(404).body("<html>"));
    let pay = payments(&receiver.url(""));
    let found = pay.look_up(label("k"), Wanted::charge(ORDER)).await;
    assert_matches!(found, Found::Unknown(_));
}

#[tokio::test]
async fn a_key_that_is_absent_counts_only_when_every_call_has_ended() {
    let over = settled(|| lost(true), || Found::Absent).await;
    assert_matches!(over, Settled::Nothing(_));
    let arriving = settled(|| lost(false), || Found::Absent).await;
    assert_matches!(arriving, Settled::Unknown(_));
    let silent = settled(|| lost(true), || Found::Unknown("no".into())).await;
    assert_matches!(silent, Settled::Unknown(_));
    let before = resumed(|| lost(true), || Found::Absent).await;
    assert_matches!(before, Settled::Unknown(_));
}

#[tokio::test]
async fn a_call_that_says_nothing_is_looked_up() {
    let found = settled(|| lost(true), || Found::Done(7)).await;
    assert_matches!(found, Settled::Done(7));
    let found = settled(|| lost(true), || Found::Refused(refusal("declined"))).await;
    assert_matches!(found, Settled::Refused(_));
}

#[tokio::test]
async fn a_call_goes_out_again_until_it_is_answered() {
    let calls = AtomicU32::new(0);
    let call = || match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => lost(false),
        _ => Outcome::Done(7),
    };
    let settled = settled(call, || unreachable!("nothing is to be looked up")).await;
    assert_matches!(settled, Settled::Done(7));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_refusal_of_the_first_call_is_believed_at_once() {
    let call = || Outcome::Refused(refusal("declined"));
    let settled = settled(call, || unreachable!("nothing is to be looked up")).await;
    assert_matches!(settled, Settled::Refused(_));
}

#[tokio::test]
async fn a_refusal_behind_a_call_that_may_have_done_it_is_looked_up() {
    let then = |is_over, code| {
        let calls = AtomicU32::new(0);
        move || match calls.fetch_add(1, Ordering::SeqCst) {
            0 => lost(is_over),
            _ => Outcome::Refused(refusal(code)),
        }
    };
    let found = settled(then(true, "unauthorized"), || Found::Done(7)).await;
    assert_matches!(found, Settled::Done(7));
    let stands = || Found::Refused(refusal("declined"));
    let found = settled(then(false, "declined"), stands).await;
    assert_matches!(found, Settled::Refused(_));
    let over = settled(then(true, "invalid"), || Found::Absent).await;
    assert_matches!(over, Settled::Refused(_));
    let arriving = settled(then(false, "invalid"), || Found::Absent).await;
    assert_matches!(arriving, Settled::Unknown(_));
    let refuses = || Outcome::Refused(refusal("unauthorized"));
    let before = resumed(refuses, || Found::Done(7)).await;
    assert_matches!(before, Settled::Done(7));
    let before = resumed(refuses, || Found::Absent).await;
    assert_matches!(before, Settled::Unknown(_));
}

#[tokio::test]
async fn a_step_that_is_refused_in_a_later_try_is_looked_up() {
    let made = Made {
        id: "auth_1".to_owned(),
        kind: "authorization".to_owned(),
        amount: None,
        currency: None,
        is_duplicate: false,
    };
    let refuses = |code| Outcome::Refused(refusal(code));
    let there = async { Found::Done(made.clone()) };
    let found = confirmed(refuses("unauthorized"), there).await;
    assert_eq!(done(found), made);
    let stands = async { Found::Refused(refusal("declined")) };
    refused(confirmed(refuses("unauthorized"), stands).await, "declined");
    let absent = confirmed(refuses("invalid"), async { Found::Absent }).await;
    assert!(!unknown(absent));
    let unasked = async { Found::Absent };
    refused(confirmed(refuses(KEY_REUSED), unasked).await, KEY_REUSED);
}

/// A server that sends scripted responses.
struct ScriptedOperation<C, L> {
    call: C,
    look_up: L,
    is_resumed: bool,
}

impl<C, L> Operation<u8> for ScriptedOperation<C, L>
where
    C: Fn() -> Outcome<u8> + Sync,
    L: Fn() -> Found<u8> + Sync,
{
    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    async fn call(&self) -> Outcome<u8> {
        (self.call)()
    }

    async fn look_up(&self) -> Found<u8> {
        (self.look_up)()
    }
}

async fn settled(
    call: impl Fn() -> Outcome<u8> + Sync,
    look_up: impl Fn() -> Found<u8> + Sync,
) -> Settled<u8> {
    settle_as(call, look_up, false).await
}

/// The same for an operation that an earlier owner has started.
async fn resumed(
    call: impl Fn() -> Outcome<u8> + Sync,
    look_up: impl Fn() -> Found<u8> + Sync,
) -> Settled<u8> {
    settle_as(call, look_up, true).await
}

async fn settle_as(
    call: impl Fn() -> Outcome<u8> + Sync,
    look_up: impl Fn() -> Found<u8> + Sync,
    is_resumed: bool,
) -> Settled<u8> {
    let outcome = ScriptedOperation {
        call,
        look_up,
        is_resumed,
    };
    settle(&Random::new(|| 0), &outcome).await
}

fn refusal(code: &str) -> Refusal {
    Refusal::new(code, "")
}

fn lost<T>(is_over: bool) -> Outcome<T> {
    let error = if is_over {
        CallError::over("failed")
    } else {
        CallError::open("late")
    };
    Outcome::Unknown(error.into())
}

/// Returns the outcome of a charge at a server that sends this response.
async fn told(reply: HttpReply) -> Outcome<Made> {
    let receiver = HttpReceiver::start().await;
    receiver.reply(reply);
    let pay = payments(&receiver.url(""));
    pay.charge(label("c"), ORDER).await
}

/// Starts a server that responds to every request with this created object.
fn answer(receiver: &HttpReceiver, kind: &str, amount: i64, currency: &str) {
    let made =
        format!(r#"{{"id":"x_1","kind":"{kind}","amount":{amount},"currency":"{currency}"}}"#);
    receiver.reply(HttpReply::status(200).body(made));
}

async fn far() -> Far {
    let folder = tempfile::tempdir().unwrap();
    let payment = ::providers::payment(&folder.path().join("payment")).unwrap();
    let shipping = ::providers::shipping(&folder.path().join("shipping")).unwrap();
    let [payment, shipping] = [serve(payment).await, serve(shipping).await];
    Far {
        payment: payments(&payment),
        shipping: Shipping::at(&place(&shipping)),
        _folder: folder,
    }
}

async fn serve(router: axum::Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(::providers::serve(listener, router, std::future::pending()));
    url
}

/// The label of a call under this key, without headers.
fn label(key: &str) -> Label<'_> {
    static NOTHING: Headers = Headers::new();
    let headers = &NOTHING;
    Label { key, headers }
}

fn payments(url: &str) -> Payments {
    Payments::at(&place(url))
}

fn place(url: &str) -> Uri {
    url.parse().unwrap()
}

fn address(country: &str) -> Address {
    let text = str::to_owned;
    Address {
        name: text("Ann"),
        line1: text("1 Road"),
        city: text("Lyon"),
        postal_code: text("69001"),
        country: text(country),
    }
}

#[track_caller]
fn done(outcome: Outcome<Made>) -> Made {
    match outcome {
        Outcome::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(outcome: Outcome<Made>, code: &str) {
    match outcome {
        Outcome::Refused(refusal) => assert_eq!(refusal.code, code),
        other => panic!("{other:?}"),
    }
}

/// Returns whether a call with an unknown outcome has ended.
#[track_caller]
fn unknown(outcome: Outcome<Made>) -> bool {
    match outcome {
        Outcome::Unknown(error) => CallError::is_over(&error),
        other => panic!("{other:?}"),
    }
}
