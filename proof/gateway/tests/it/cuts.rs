//! Cuts of the connection between the gateway and the service, at every byte of the request and of the
//! response.

use hapax_testkit::proxy::{Direction, Fault, Proxy};

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::Upstream,
};

/// More bytes than a request or a response of these tests has.
const LONGEST: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_at_any_byte_is_not_sent_again() {
    check(Store::Sqlite, Direction::ToServer, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_cut_at_any_byte_is_not_asked_for_again() {
    check(Store::Sqlite, Direction::ToClient, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_are_unknown_outcomes_on_postgresql_too() {
    check(Store::Postgres, Direction::ToServer, 23).await;
    check(Store::Postgres, Direction::ToClient, 23).await;
}

/// Cuts after every `step`th byte of a direction, until a request passes whole.
pub(crate) async fn check(on: Store, direction: Direction, step: usize) {
    let upstream = Upstream::python();
    let proxy = Proxy::to(upstream.address().to_string());
    let home = Home::fresh(on).await;
    let gateway = Gateway::start(&home, &configuration(proxy.address(), "")).await;
    let (mut cuts, mut acted_and_cut) = (0, 0);
    let mut passed = None;
    for bytes in (0..LONGEST).step_by(step) {
        let key = format!("cut-{bytes:04}");
        let before = proxy.tally().cut;
        proxy.set(direction, Fault::CutAfter(bytes));
        let first = gateway.order(&key, "").await;
        let was_cut = proxy.tally().cut > before;
        proxy.heal().await;
        if !was_cut || first.status < 300 {
            assert_eq!(first.status, 201, "{bytes}: {}", first.text());
            assert_eq!(upstream.lines_of(&key).len(), 1, "{bytes}");
            passed = Some(bytes);
            break;
        }
        cuts += 1;
        assert!(first.is_unknown(), "{bytes}: {}", first.text());
        assert_eq!(first.status, 502, "{bytes}: {}", first.text());
        let retry = gateway.order(&key, "").await;
        assert!(retry.is_unknown(), "{bytes}: {}", retry.text());
        let acted = upstream.lines_of(&key).len();
        acted_and_cut += acted;
        let expected = match direction {
            // A whole request may have arrived whose response was lost.
            Direction::ToServer => 0..=1,
            Direction::ToClient => 1..=1,
        };
        assert!(expected.contains(&acted), "{bytes}: {acted}");
    }
    let passed = passed.expect("the longest cut is behind the last byte");
    // The heads alone have more bytes than this.
    assert!(cuts * step >= 100, "{cuts} cuts, passed at {passed}");
    if direction == Direction::ToClient {
        assert_eq!(acted_and_cut, cuts);
    } else {
        assert!(
            acted_and_cut <= 2,
            "{acted_and_cut} requests that were cut had an effect"
        );
    }
}

#[tokio::test]
async fn a_connection_that_was_refused_sends_nothing() {
    let upstream = Upstream::python();
    let proxy = Proxy::to(upstream.address().to_string());
    let gateway = Gateway::before(proxy.address()).await;
    assert_eq!(gateway.order("before", "").await.status, 201);
    proxy.shut().await;
    // The idle connection was reset, and no other one can be established.
    for round in 0..10 {
        let key = format!("refused-{round}");
        let refused = gateway.order(&key, "").await;
        if round > 0 {
            assert_eq!(refused.status, 503, "{}", refused.text());
        }
        assert!(round == 0 || !refused.is_unknown(), "{}", refused.text());
    }
    proxy.heal().await;
    for round in 1..10 {
        let key = format!("refused-{round}");
        assert_eq!(gateway.decided(&key).await.status, 201);
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
    assert!(upstream.lines_of("refused-0").is_empty());
}
