//! Checks of the sinks that send requests to the API of a service: S3, SQS, SNS and Pub/Sub.

use std::time::Duration;

use hapax::{
    event::NewEvent,
    sink::{Offer, Sink, SinkError},
};
use hapax_sinks::settings::DestinationSettings;
use hapax_testkit::http::{HttpReceiver, HttpReply, Received};
use serde_json::Value;

use crate::{
    events::{DATE, any_offer, deliver, error_type, offer, offers, postponed, rejected},
    sinks,
};

/// A response without success: its status and its code, and the type of the error that is expected.
pub(crate) type Refusal<'a> = (u16, &'a str, &'static str);

/// Checks that a batch costs one request if the service refuses it, and that each event is then
/// unavailable. The code is shown, and not the text of the response, which contains `hunter2`.
pub(crate) async fn check_refused(
    receiver: &HttpReceiver,
    sink: &impl Sink,
    count: u64,
    (status, code, expected): Refusal<'_>,
) {
    let outcomes = sink.deliver(&offers(count, 1)).await;
    assert_eq!(receiver.received().len(), 1, "{code}");
    assert_eq!(u64::try_from(outcomes.len()).unwrap(), count);
    for outcome in outcomes {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!(error.receipt().status, Some(status));
        let chain = error.error_chain();
        assert!(
            chain.contains(code) && !chain.contains("hunter2"),
            "{chain}"
        );
        assert_eq!(error_type(outcome), expected, "{code}");
    }
}

/// Checks that a response that refuses a signature is a problem of the login, unless the `Date` of the
/// response shows that the clock is wrong.
pub(crate) async fn check_clock(receiver: &HttpReceiver, sink: &impl Sink, refusal: HttpReply) {
    for (date, expected, advice) in [
        (DATE, "login", ": check "),
        ("Tue, 14 Nov 2023 22:18:20 GMT", "login", ": check "),
        (
            "Tue, 14 Nov 2023 22:18:21 GMT",
            "clock",
            "differs by 5 minutes",
        ),
        (
            "Tue, 14 Nov 2023 21:13:20 GMT",
            "clock",
            "differs by 60 minutes",
        ),
        ("yesterday", "login", "the clock of this machine"),
    ] {
        receiver.reply(refusal.clone().header("date", date));
        let chain = postponed(&deliver(sink, any_offer()).await, expected);
        assert!(chain.contains(advice), "{date}: {chain}");
    }
}

/// Checks that a service that does not respond costs a batch its timeout.
pub(crate) async fn check_slow<S: Sink>(
    count: u64,
    sink: impl FnOnce(&HttpReceiver, DestinationSettings) -> S,
) {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(Duration::from_hours(1)));
    let sink = sink(&receiver, sinks::within(Duration::from_millis(300)));
    for outcome in sink.deliver(&offers(count, 1)).await {
        assert_eq!(error_type(outcome), "timeout");
    }
}

/// Checks that a request of SQS or SNS has at most 256 KiB, and that a larger message is not sent.
pub(crate) async fn check_size(
    receiver: &HttpReceiver,
    sink: &impl Sink,
    messages: impl Fn(&Received) -> usize,
) {
    let mut offers = offers(5, 100_000);
    let large = NewEvent::json("order.created", &"x".repeat(256 * 1024));
    offers.insert(1, offer(100, large));
    let outcomes = sink.deliver(&offers).await;
    rejected(&outcomes[1], "too_large");
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 5);
    let counts: Vec<_> = receiver.received().iter().map(messages).collect();
    assert_eq!(counts, [2, 2, 1]);
}

/// Checks that a batch is divided because of two of its events: the service always refuses a request with
/// the payload `"spoilt"`, and one with the payload `"lengthy"` is too large for it.
pub(crate) async fn check_spoilt(sink: &impl Sink) {
    let mut offers = offers(6, 1);
    offers.insert(4, offer(100, NewEvent::json("order.created", &"spoilt")));
    offers.insert(2, offer(101, NewEvent::json("order.created", &"lengthy")));
    let outcomes = sink.deliver(&offers).await;
    rejected(&outcomes[2], "too_large");
    let is_declined = matches!(outcomes[5], Err(SinkError::Declined { .. }));
    assert!(is_declined, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 6);
}

/// Checks that a FIFO queue has received the events, those of each aggregate in order.
#[track_caller]
pub(crate) fn check_order(messages: &[Value], offers: &[Offer]) {
    assert_eq!(messages.len(), offers.len());
    for offer in offers.iter().take(7) {
        let aggregate = offer.event().aggregate.as_ref().unwrap();
        let of_aggregate = |it: &&Offer| it.event().aggregate.as_ref() == Some(aggregate);
        let sent = offers.iter().filter(of_aggregate);
        let sent: Vec<_> = sent.map(|it| it.event().id.to_string()).collect();
        let group = format!("order/{}", aggregate.id);
        let received = messages.iter();
        let received = received.filter(|it| it["Attributes"]["MessageGroupId"] == group);
        let id = |it: &Value| it["MessageAttributes"]["id"]["StringValue"].clone();
        let received: Vec<_> = received.map(id).collect();
        assert_eq!(received, sent);
    }
}
