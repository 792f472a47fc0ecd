//! One trace for all attempts of an operation, and a span id for each.

use hapax::trace::{TraceContext, Traces};
use hapax_client::Client;
use hapax_testkit::http::{HttpReceiver, HttpReply, Received};

use crate::stage::{client, post, settings};

const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn all_attempts_belong_to_one_new_trace_and_each_has_its_own_span_and_number() {
    let receiver = flaky().await;
    let client = client();
    client.send(post(&receiver)).await.unwrap();
    let contexts = check_attempts(&receiver.received());
    client.send(post(&receiver)).await.unwrap();
    let next = context(&receiver.received()[3]);
    assert_ne!(next.trace_id(), contexts[0].trace_id());
}

#[tokio::test]
async fn the_attempts_continue_the_trace_of_the_caller() {
    let receiver = flaky().await;
    let request = post(&receiver).header("traceparent", SENT).unwrap();
    let request = request.header("tracestate", "vendor=1").unwrap();
    client().send(request).await.unwrap();
    let sent = TraceContext::parse(SENT).unwrap();
    for context in check_attempts(&receiver.received()) {
        assert_eq!(context.trace_id(), sent.trace_id());
        assert_ne!(context.span_id(), sent.span_id());
    }
    let is_kept = |it: &Received| it.header("tracestate") == Some("vendor=1");
    assert!(receiver.received().iter().all(is_kept));
}

#[tokio::test]
async fn a_client_that_does_not_trace_passes_on_what_its_caller_has_set() {
    let mut settings = settings();
    settings.traces = Traces::off();
    let (client, receiver) = (Client::new(settings).unwrap(), HttpReceiver::start().await);
    client.send(post(&receiver)).await.unwrap();
    let request = post(&receiver).header("traceparent", SENT).unwrap();
    client.send(request).await.unwrap();
    let sent = receiver.received();
    assert_eq!(sent[0].header("traceparent"), None);
    assert_eq!(sent[1].header("traceparent"), Some(SENT));
}

#[tokio::test]
async fn a_malformed_context_of_the_caller_begins_a_new_trace() {
    let receiver = HttpReceiver::start().await;
    let request = post(&receiver).header("traceparent", "00-1-2-01").unwrap();
    client().send(request).await.unwrap();
    assert!(context(&receiver.received()[0]).is_sampled());
}

/// A receiver that loses its first response, and refuses the second request.
async fn flaky() -> HttpReceiver {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::closed());
    receiver.reply_next(HttpReply::status(503));
    receiver
}

/// Checks that these are three attempts in one trace, and returns their contexts.
#[track_caller]
pub(crate) fn check_attempts(received: &[Received]) -> Vec<TraceContext> {
    let numbers: Vec<_> = received
        .iter()
        .map(|it| it.header("idempotency-attempt").unwrap_or_default())
        .collect();
    assert_eq!(numbers, ["1", "2", "3"]);
    let contexts: Vec<_> = received.iter().map(context).collect();
    for (at, context) in contexts.iter().enumerate() {
        assert_eq!(context.trace_id(), contexts[0].trace_id());
        let earlier = &contexts[..at];
        assert!(earlier.iter().all(|it| it.span_id() != context.span_id()));
    }
    contexts
}

#[track_caller]
fn context(received: &Received) -> TraceContext {
    let mut sent = received.headers.get_all("traceparent").iter();
    let only = sent.next().unwrap().to_str().unwrap();
    assert!(sent.next().is_none(), "two contexts");
    TraceContext::parse(only).unwrap()
}
