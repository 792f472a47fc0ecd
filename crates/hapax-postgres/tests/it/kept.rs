//! Events that deliveries still need when their segment is emptied: they are copied out in batches,
//! and a failing step of a purge does not stop the other steps.

use std::time::Duration;

use hapax::store::{DeadLetters, Outbox, Settlements};

use crate::{
    fixture::Fixture,
    reading::TURN,
    retention::{AGE, DAY, LEFT, UNVISITED, emit, pass, purge, purge_once},
};

const KEPT: &str = "SELECT count(*) FROM hapax.outbox_event_kept";
const PARK: &str = "
    INSERT INTO hapax.delivery (destination, position, state, attempt, next_at, changed_at)
    SELECT 'hook', id, $1, 1, now(), now() FROM hapax.outbox_event WHERE id % 10 <> 0";

/// A segment that every destination has read and whose retention is over, with deliveries that need
/// 9 of 10 of its events.
async fn parked(count: i32, state: &str) -> Fixture {
    let fixture = Fixture::new().await;
    fixture.run(UNVISITED).await;
    emit(&fixture.plain, count).await;
    while !pass(&fixture, 10_000).await.is_empty() {}
    fixture.plain.execute(PARK, &[&state]).await.unwrap();
    fixture.run(TURN).await;
    assert_eq!(purge_once(&fixture).await, 0);
    fixture.run(AGE).await;
    fixture
}

#[tokio::test]
async fn what_many_deliveries_need_is_taken_out_of_its_segment_batch_by_batch() {
    let fixture = parked(25_000, "dead").await;
    for kept in [10_000, 20_000] {
        assert_eq!(purge_once(&fixture).await, 10_000);
        assert_eq!(fixture.count(KEPT).await, kept);
        assert_eq!(fixture.count(LEFT).await, 25_000, "an event exists twice");
        let letters = fixture.store.dead_letters("hook", kept, 5_000).await;
        assert!(
            letters
                .unwrap()
                .is_sorted_by_key(|letter| letter.event.position)
        );
    }
    assert!(purge_once(&fixture).await >= 5_000);
    assert_eq!(fixture.count(LEFT).await, 22_500);
    assert_eq!(fixture.count(KEPT).await, 22_500);
    let letters = fixture.store.dead_letters("hook", 0, 2).await.unwrap();
    let positions = letters.iter().map(|letter| letter.event.position);
    assert_eq!(positions.collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_batch_of_large_events_is_small() {
    let fixture = parked(100, "dead").await;
    // Events are never rewritten by the product; only the size of the payload matters here.
    fixture
        .run("UPDATE hapax.outbox_event SET payload = repeat('x', 1 << 20)")
        .await;
    assert!(purge_once(&fixture).await > 0);
    assert_eq!(fixture.count(KEPT).await, 64);
    assert!(purge_once(&fixture).await > 0);
    assert_eq!(fixture.count(LEFT).await, 90);
}

/// Between two batches an operator offers events again, and a new partition parks some, at
/// positions that the purge has already looked through. These events are kept as well.
#[tokio::test]
async fn what_is_needed_again_after_a_batch_is_kept_too() {
    for again in [
        include_str!("../../queries/admin/check_again.sql"),
        "INSERT INTO hapax.lease (partition, epoch, taken_at) VALUES ('new', 1, now());
         DELETE FROM hapax.lease WHERE partition = 'new'",
        "UPDATE hapax.lease SET epoch = epoch + 1",
    ] {
        let fixture = parked(12_000, "dead").await;
        assert_eq!(purge_once(&fixture).await, 10_000);
        fixture.run(again).await;
        let offered = "
            INSERT INTO hapax.delivery (destination, position, state, attempt, next_at, changed_at)
            VALUES ('hook', 10, 'scheduled', 0, now(), now())";
        fixture.run(offered).await;
        while purge_once(&fixture).await > 0 {}
        let due = fixture.store.due("hook", &[], 10, 0).await.unwrap();
        let due: Vec<i64> = due.iter().map(|parked| parked.event.position).collect();
        assert_eq!(due, [10], "{again}");
        assert_eq!(fixture.count(LEFT).await, 10_801);
    }
}

/// If one step fails, the purge still empties the other segments, deletes finished rows and purges
/// the inbox, and finally reports the failure.
#[tokio::test]
async fn a_step_that_fails_holds_up_no_other_and_is_not_hidden() {
    let fixture = parked(10, "retrying").await;
    let refuse = "
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE 'no room'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON hapax.outbox_event_kept
            FOR EACH ROW EXECUTE FUNCTION refuse();
        INSERT INTO hapax.inbox_message (consumer, message_id, source, payload_hash, received_at)
        VALUES ('c', 'm', 's', '', now() - interval '9 days')";
    fixture.run(refuse).await;
    emit(&fixture.plain, 7).await;
    assert_eq!(pass(&fixture, 10).await.len(), 7);
    let mut gone = 0;
    let failed = loop {
        match fixture.store.purge_events(DAY, DAY).await {
            Ok(0) => panic!("the purge did not report the step that failed"),
            Ok(count) => gone += count,
            Err(error) => break error,
        }
        fixture.run(AGE).await;
    };
    assert!(
        failed.error_chain().contains("P0001"),
        "{}",
        failed.error_chain()
    );
    assert!(gone >= 1, "the failing step stopped the purge of the inbox");
    fixture.run(AGE).await;
    while fixture.store.purge_events(DAY, Duration::MAX).await.is_ok() {
        fixture.run(AGE).await;
    }
    let ended = "SELECT count(*) FROM hapax.rotation WHERE emptied_at IS NOT NULL";
    assert_eq!(fixture.count(ended).await, 0);
    assert_eq!(
        fixture.count(LEFT).await,
        10,
        "the failing step stopped the other segment"
    );
    fixture
        .run("DROP TRIGGER refuse ON hapax.outbox_event_kept")
        .await;
    assert!(purge(&fixture).await > 0);
    assert_eq!(fixture.count(LEFT).await, 9);
}
