//! Dead letters are numbered in the order in which they died, so that a job processes exactly those
//! that were counted, although the clock stands still.

use hapax::admin::{
    AdminError, DeliveryAdmin as _, DeliveryFilter, DeliveryStatus, EventFilter, JobAdmin as _,
    JobOptions,
};
use hapax_testkit::assert_matches;

use super::scene::{beside, emit, number, ops, pass, work};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_letter_that_died_again_since_it_was_counted_is_not_processed() {
    let fixture = Fixture::new().await;
    emit(&fixture.store, 4).await;
    pass(&fixture.store, "orders", 4, &[1, 2]).await;
    let admin = beside(&fixture);
    let seen = admin.seen().await.unwrap();
    let filter = EventFilter::default();
    let count = || admin.count_dead_letters(ops(), "orders", &filter, &seen);
    assert_eq!(count().await.unwrap(), 2);
    // One is replayed and dies again, and another one dies, in the same millisecond.
    admin.replay_dead_letter(ops(), "orders", 1).await.unwrap();
    pass(&fixture.store, "orders", 4, &[1, 3]).await;
    assert_eq!(count().await.unwrap(), 1);
    let options = JobOptions {
        seen: Some(seen.clone()),
        ..JobOptions::default()
    };
    let job = admin.start_dead_letter_job(ops(), "orders", &filter, Some("old"), &options);
    let job = job.await.unwrap();
    assert_eq!(job.total, Some(1));
    work(&admin).await;
    let discarded = "SELECT CAST(group_concat(position) AS INTEGER) FROM hapax_delivery WHERE state = 'discarded'";
    assert_eq!(number(&fixture.path(), discarded), 2);
}

/// A count of a database that was set back since would include letters that were not counted.
#[tokio::test]
async fn a_count_that_is_newer_than_the_database_is_refused() {
    let fixture = Fixture::new().await;
    pass(&fixture.store, "orders", 0, &[]).await;
    let admin = beside(&fixture);
    let filter = EventFilter::default();
    let newer = admin
        .count_dead_letters(ops(), "orders", &filter, "1 9")
        .await;
    assert_matches!(newer, Err(AdminError::Invalid { .. }));
    let own = admin
        .count_dead_letters(ops(), "orders", &filter, "1 0")
        .await;
    assert_eq!(own.unwrap(), 0);
}

#[tokio::test]
async fn deliveries_of_several_partitions_are_merged_by_position() {
    let fixture = Fixture::new().await;
    emit(&fixture.store, 9).await;
    pass(&fixture.store, "a/0", 9, &[1, 4, 7]).await;
    pass(&fixture.store, "a/1", 9, &[2, 4, 8]).await;
    pass(&fixture.store, "b", 9, &[3, 4, 9]).await;
    let admin = beside(&fixture);
    for states in [vec![], vec![DeliveryStatus::Dead]] {
        let filter = DeliveryFilter {
            states,
            ..DeliveryFilter::default()
        };
        let (mut before, mut found) = (None, Vec::new());
        loop {
            let page = admin
                .deliveries(ops(), &filter, before.as_deref(), 2)
                .await
                .unwrap();
            let items = page.items.into_iter();
            found.extend(items.map(|it| (it.position, it.partition)));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let expected = [
            (9, "b"),
            (8, "a/1"),
            (7, "a/0"),
            (4, "b"),
            (4, "a/1"),
            (4, "a/0"),
            (3, "b"),
            (2, "a/1"),
            (1, "a/0"),
        ];
        let expected = expected.map(|(position, name)| (position, name.to_owned()));
        assert_eq!(found, expected);
    }
}
