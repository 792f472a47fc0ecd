//! A service that speaks HTTP/2: streams that are refused or reset, and connections that end with
//! GOAWAY.

use crate::{
    gateway::{Gateway, Home, Store, configuration_with},
    upstream::{Kind, Upstream},
    wire::digest,
};

async fn gateway(upstream: &Upstream) -> Gateway {
    let home = Home::fresh(Store::Sqlite).await;
    let settings = configuration_with(upstream.address(), "protocol = \"http2\"", "");
    Gateway::start(&home, &settings).await
}

#[tokio::test]
async fn an_answer_over_http2_is_stored_and_replayed() {
    let upstream = Upstream::start(Kind::NodeHttp2);
    let gateway = gateway(&upstream).await;
    let first = gateway.order("k", "").await;
    assert_eq!(first.status, 201, "{}", first.text());
    let claimed = first.header("x-answer").map(str::to_owned);
    assert_eq!(claimed, Some(digest(&first.body)));
    let replay = gateway.order("k", "").await;
    assert_eq!((replay.status, &replay.body), (201, &first.body));
    assert_eq!(upstream.lines_of("k").len(), 1);
}

#[tokio::test]
async fn a_stream_that_fails_leaves_an_unknown_outcome_and_is_not_repeated() {
    let mut upstream = Upstream::start(Kind::NodeHttp2);
    let gateway = gateway(&upstream).await;
    let faults = [
        ("reset", 1),
        ("cancel", 1),
        ("close", 1),
        ("hang", 1),
        ("hang-before", 0),
        ("kill-before", 0),
        ("kill-after", 1),
    ];
    for (fault, acted) in faults {
        let first = gateway.order(fault, fault).await;
        assert!(first.is_unknown(), "{fault}: {}", first.text());
        if fault.starts_with("kill") {
            upstream.restart();
        }
        let retry = gateway.order(fault, "").await;
        assert!(retry.is_unknown(), "{fault}: {}", retry.text());
        assert_eq!(upstream.lines_of(fault).len(), acted, "{fault}");
    }
    assert_eq!(gateway.decided("after").await.status, 201);
}

#[tokio::test]
async fn a_stream_that_the_service_did_not_process_acts_at_most_once() {
    let upstream = Upstream::start(Kind::NodeHttp2);
    let gateway = gateway(&upstream).await;
    for fault in ["refuse", "goaway"] {
        // The service says that it has not processed the stream, so the gateway may send it again.
        // It need not: then the outcome is unknown.
        let first = gateway.order(fault, fault).await;
        assert!(first.status >= 500, "{fault}: {}", first.text());
        let decided = gateway.decided(fault).await;
        let acted = upstream.lines_of(fault).len();
        assert_eq!(acted, usize::from(decided.status == 201), "{fault}");
    }
    assert_eq!(gateway.decided("after").await.status, 201);
    assert_eq!(upstream.lines_of("after").len(), 1);
}
