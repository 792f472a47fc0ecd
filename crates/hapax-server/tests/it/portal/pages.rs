//! The state, the payload and the health of endpoints on the pages of the portal.

use super::{Stage, value_of};
use crate::store::Store;

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_sees_that_an_endpoint_is_slowed_and_when_it_is_tried_again() {
    let stage = Stage::new(Store::Postgres).await;
    let alice = stage.open("alice", "write").await;
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    let path = format!("/portal/endpoints/{id}");
    let slowed = "UPDATE hapax.endpoint
        SET failures = 5, slow_until = now() + interval '1 minute', last_error = 'status 503'";
    stage.home.change("", slowed).await;
    let page = alice.page(&path).await;
    for said in [
        ">slowed<",
        "5 attempts in a row have failed: status 503",
        "Events are sent one at a time",
        "The next attempt is",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let disabled = "UPDATE hapax.endpoint SET disabled_reason = 'all attempts failed',
        disabled_at = now(), probe_at = now() + interval '1 hour'";
    stage.home.change("", disabled).await;
    let page = alice.page(&path).await;
    for said in [
        ">disabled<",
        "all attempts failed",
        "One event is tried again",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(!page.contains("status 503"), "{page}");
    let list = alice.page("/portal").await;
    assert!(
        list.contains(">disabled<") && list.contains("tried again "),
        "{list}"
    );
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_chooses_the_payload_if_events_can_be_fetched() {
    let stage = Stage::new(Store::Sqlite).await;
    let alice = stage.open("alice", "write").await;
    let field = "name=\"payload\"";
    let page = alice.page("/portal/endpoints/new").await;
    assert!(!page.contains(field), "{page}");
    stage.relay.stop().await;
    let events_url = "events_url = \"https://events.example.com/events\"\n";
    let stage = Stage::with(Store::Sqlite, "", events_url).await;
    let alice = stage.open("alice", "write").await;
    let page = alice.page("/portal/endpoints/new").await;
    assert!(page.contains(field), "{page}");
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    let path = format!("/portal/endpoints/{id}");
    let page = alice.page(&path).await;
    assert!(page.contains("value=\"full\" selected"), "{page}");
    let version = value_of(&page, "version");
    let change =
        format!("version={version}&url=https%3A%2F%2Falice.example%2F&types=order.*&payload=thin");
    assert_eq!(alice.post(&path, &change).await.status, 303);
    let page = alice.page(&path).await;
    assert!(page.contains("value=\"thin\" selected"), "{page}");
    let reader = stage.open("alice", "read").await;
    let page = reader.page(&path).await;
    assert!(page.contains("the id of the event and a link"), "{page}");
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_endpoints_reads_a_bounded_number_of_attempts() {
    const ATTEMPTS: &str = "
        INSERT INTO hapax.endpoint_attempt
            (endpoint, tenant, position, event_id, type, number, started_at, duration_ms, outcome,
             request, response, is_encrypted)
        SELECT endpoint.id, endpoint.tenant, number, gen_random_uuid(), 'a', 1,
               now() - number * interval '1 second', 5,
               CASE WHEN number <= 200 THEN 'delivered' ELSE 'declined' END, '', '', false
        FROM hapax.endpoint AS endpoint, generate_series(1, 300) AS number";
    let stage = Stage::new(Store::Postgres).await;
    let alice = stage.open("alice", "write").await;
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    stage.home.change("", ATTEMPTS).await;
    let list = alice.page("/portal").await;
    assert!(list.contains("100.0 %"), "{list}");
    let page = alice.page(&format!("/portal/endpoints/{id}")).await;
    assert!(page.contains("66.7 %"), "{page}");
    stage.relay.stop().await;
}
