//! Conformance tests of the outbox: every committed event is read once, unchanged and in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    delivery::{Frontier, ParkedState, Settlement, Shards},
    event::{Headers, NewEvent, Payload},
    limits::{EVENT_HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, READ_BYTES},
    outbox::OutboxEvent,
    store::{DeadLetters, Keys, Outbox, Settlements, Source, Transaction},
};

use super::{DeliveriesUnderTest, fixture::Fixture, steps};
use crate::events::{claim, event};

const DAY: Duration = Duration::from_hours(24);

/// All fields are read as they were emitted, the payload byte for byte.
pub async fn an_event_reads_back_as_it_was_emitted<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let text = "{ \"n\": 1.0,\n \"n\":9007199254740993, \"u\":\"caf\u{e9} \\u0000 \u{1f980}\" } ";
    let later = fixture.clock.now().after(DAY);
    let stated = NewEvent::new("order.created", Payload::Json(text.to_owned()))
        .about("order", "o 1 '\u{1f980}")
        .sequence(i64::MAX)
        .header("source", "caf\u{e9}")
        .available_at(later);
    let plain = NewEvent::json("a", &serde_json::Value::Null);
    let ids = fixture.emit(vec![stated.clone(), plain.clone()]).await;
    let events = fixture.events().await;
    assert_eq!(events.len(), 2);
    for (read, (id, stated)) in events.iter().zip(ids.into_iter().zip([stated, plain])) {
        let read = &read.event;
        assert_eq!(read.id, id);
        assert_eq!(read.kind, stated.kind);
        assert_eq!(read.aggregate, stated.aggregate);
        assert_eq!(read.sequence, stated.sequence);
        assert_eq!(read.payload, stated.payload);
        assert_eq!(read.headers, stated.headers);
        assert_eq!(read.available_at, stated.available_at);
        assert_eq!(read.created_at, fixture.clock.now());
        assert_eq!(read.tenant, None);
    }
}

/// A payload that is not JSON is read byte for byte, with its media type.
pub async fn a_binary_payload_reads_back_byte_for_byte<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let payload = |bytes| Payload::Binary {
        content_type: "application/x-thing; v=1".to_owned(),
        bytes,
    };
    let payloads = [payload((0..=255).collect()), payload(Bytes::new())];
    let stated = payloads
        .iter()
        .map(|payload| NewEvent::new("file.stored", payload.clone()));
    fixture.emit(stated.collect()).await;
    let read: Vec<_> = fixture
        .events()
        .await
        .iter()
        .map(|one| one.event.payload.clone())
        .collect();
    assert_eq!(read, payloads);
}

/// The longest permitted payload is read completely.
pub async fn the_largest_payload_reads_back_byte_for_byte<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    let payload = Payload::Json(text);
    fixture
        .emit(vec![NewEvent::new("large", payload.clone())])
        .await;
    assert_eq!(fixture.events().await[0].event.payload, payload);
}

/// An event of a keyed request contains the tenant and the hash of the key.
pub async fn an_event_carries_its_requests_tenant_context_and_key_hash<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    tx.emit(event("1").header("source", "checkout"))
        .expect("an event is emitted");
    tx.emit(event("2").header("correlation_id", "mine"))
        .expect("an event is emitted");
    tx.commit().await.expect("it is committed");
    let events = fixture.events().await;
    let hash = claim("k").scope.key.short_hash();
    let expected = |pairs: &[(&str, &str)]| -> Headers {
        let own = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        own.chain([("idempotency_key_hash".to_owned(), hash.clone())])
            .collect()
    };
    assert_eq!(
        events[0].event.headers,
        expected(&[("correlation_id", "corr-1"), ("source", "checkout")])
    );
    assert_eq!(
        events[1].event.headers,
        expected(&[("correlation_id", "mine")])
    );
    assert_eq!(events[0].event.tenant, Some(claim("k").scope.tenant));
}

/// An event without a key contains the tenant and the context of its transaction.
pub async fn an_event_without_a_key_carries_its_tenant_and_context<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let context = Headers::from([("traceparent".to_owned(), "00-1-2-01".to_owned())]);
    let tenant = claim("k").scope.tenant;
    let mut tx = fixture
        .store()
        .begin(Some(tenant.clone()), context.clone())
        .await
        .expect("it opens");
    tx.emit(event("1")).expect("an event is emitted");
    tx.commit().await.expect("it is committed");
    let events = fixture.events().await;
    assert_eq!(events[0].event.headers, context);
    assert_eq!(events[0].event.tenant, Some(tenant));
}

/// Events are read in the order in which they were emitted, within and across transactions.
pub async fn events_are_read_in_order_page_by_page<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let pair = vec![event(&number.to_string()), event(&number.to_string())];
        ids.extend(fixture.emit(pair).await);
    }
    for limit in [1, 3, 10, 11, 1_000] {
        let (mut read, mut frontier) = (Vec::<Arc<OutboxEvent>>::new(), Frontier::default());
        loop {
            let batch = fixture
                .store()
                .read(&frontier, Shards::ALL, limit)
                .await
                .expect("it is read");
            assert!(
                batch.events.len() <= limit,
                "{} of {limit}",
                batch.events.len()
            );
            frontier = batch.frontier;
            if batch.events.is_empty() {
                break;
            }
            read.extend(batch.events);
        }
        let order: Vec<_> = read.iter().map(|one| one.event.id).collect();
        assert_eq!(order, ids, "in pages of {limit}");
        let positions: Vec<_> = read.iter().map(|one| one.position).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    }
}

/// Reading from a frontier returns what comes after it, repeatedly and after a restart.
pub async fn a_frontier_stays_good_across_a_restart<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.emit(vec![event("1"), event("2")]).await;
    let (_, frontier) = fixture.events_beyond(Frontier::default()).await;
    let (none, frontier) = fixture.events_beyond(frontier).await;
    assert_eq!(none.len(), 0);
    let fixture = fixture.reopen().await;
    let third = fixture.emit(vec![event("3")]).await;
    for _ in 0..2 {
        let (read, _) = fixture.events_beyond(frontier.clone()).await;
        let ids: Vec<_> = read.iter().map(|one| one.event.id).collect();
        assert_eq!(ids, third);
    }
}

/// With concurrent writers, a reader misses nothing, reads nothing twice, and nothing that was
/// rolled back.
pub async fn a_reader_among_writers_loses_and_repeats_nothing<S: DeliveriesUnderTest>() {
    const WRITERS: usize = 8;
    const ROUNDS: i64 = 40;
    let fixture = Fixture::<S>::fresh().await;
    let store = fixture.store().clone();
    let reader = tokio::spawn(read_until(store, WRITERS * 20));
    let writers = (0..WRITERS).map(|writer| {
        let store = fixture.store().clone();
        tokio::spawn(write_rounds(store, writer.to_string(), ROUNDS))
    });
    for writer in join_all(writers).await {
        writer.expect("no panic");
    }
    let read = reader.await.expect("no panic");
    let mut rounds = BTreeMap::<String, Vec<i64>>::new();
    for one in &read {
        let about = one.event.aggregate.as_ref().expect("it has an aggregate");
        let round = one.event.sequence.expect("it has a sequence");
        rounds.entry(about.id.clone()).or_default().push(round);
    }
    let committed: Vec<_> = (0..ROUNDS).step_by(2).collect();
    for (writer, read) in rounds {
        assert_eq!(read, committed, "what was read of writer {writer}");
    }
    let ids: BTreeSet<_> = read.iter().map(|one| one.event.id).collect();
    assert_eq!(ids.len(), WRITERS * 20);
    assert_eq!(fixture.events().await.len(), WRITERS * 20);
}

/// A read of large events ends early, and the next one continues after it.
pub async fn a_read_of_large_events_ends_early<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    let count = 2 * READ_BYTES / PAYLOAD_BYTES_MAX + 2;
    let large = NewEvent::new("large", Payload::Json(text));
    let ids = fixture.emit(vec![large; count]).await;
    let first = fixture
        .store()
        .read(&Frontier::default(), Shards::ALL, 1_000)
        .await
        .expect("it is read");
    assert!(
        (1..count).contains(&first.events.len()),
        "{} of {count}",
        first.events.len()
    );
    let (rest, _) = fixture.events_beyond(first.frontier).await;
    let read: Vec<_> = first
        .events
        .iter()
        .chain(&rest)
        .map(|one| one.event.id)
        .collect();
    assert_eq!(read, ids);
}

/// The size limit of a read counts everything that is stored for an event: many headers end a read
/// as a large payload does, both for the outbox and for due deliveries.
pub async fn a_read_of_large_headers_ends_early<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let large = (0..16).fold(event("large"), |event, number| {
        event.header(
            format!("h{number:02}"),
            "x".repeat(EVENT_HEADER_BYTES_MAX - 3),
        )
    });
    let bytes = 16 * EVENT_HEADER_BYTES_MAX;
    let count = 2 * READ_BYTES / bytes + 2;
    let ids = fixture.emit(vec![large; count]).await;
    let first = fixture
        .store()
        .read(&Frontier::default(), Shards::ALL, 1_000)
        .await
        .expect("it is read");
    let most = READ_BYTES / bytes + 1;
    assert!(
        (1..=most).contains(&first.events.len()),
        "{}",
        first.events.len()
    );
    let (rest, behind) = fixture.events_beyond(first.frontier).await;
    let all: Vec<_> = first.events.iter().chain(&rest).collect();
    let read: Vec<_> = all.iter().map(|one| one.event.id).collect();
    assert_eq!(read, ids);
    let mut by_partitions = 0;
    for partition in 0..2 {
        let two = NonZeroU8::new(2).expect("it is not zero");
        let shards = Shards::of_partition(partition, two).expect("there are two");
        let mut frontier = Frontier::default();
        loop {
            let read = fixture.store().read(&frontier, shards, 1_000).await;
            let batch = read.expect("it is read");
            if batch.events.is_empty() {
                break;
            }
            by_partitions += batch.events.len();
            frontier = batch.frontier;
        }
    }
    assert_eq!(
        by_partitions, count,
        "a read that ends early must not skip events"
    );
    let opened = fixture.open("d").await;
    let mut parks = steps::settlement("d", opened.epoch);
    parks.checkpoint = Some(steps::checkpoint(behind, &[], &[]));
    let now = fixture.clock.now();
    let park =
        |one: &&Arc<OutboxEvent>| steps::park_key(one.position, ParkedState::Retrying, now, "key");
    parks.park = all.iter().map(park).collect();
    fixture.settle(parks).await;
    let due = fixture.store().due("d", &[], 1_000, 0).await;
    let due = due.expect("what is due is read").len();
    assert!(
        (1..=most).contains(&due),
        "{due} deliveries were returned at once"
    );
}

/// An event is kept until every destination has passed it, however old it is.
pub async fn no_event_goes_that_a_destination_has_not_passed<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(5).await;
    assert_eq!(
        purge_old(&fixture).await,
        0,
        "without a destination, all events are kept"
    );
    assert_eq!(fixture.events().await, events);
    pass(&fixture, "fast", 4, |_| {}).await;
    pass(&fixture, "slow", 2, |_| {}).await;
    purge_old(&fixture).await;
    assert!(fixture.events().await.ends_with(&events[2..]));
    pass(&fixture, "slow", 2, |_| {}).await;
    purge_old(&fixture).await;
    assert!(fixture.events().await.ends_with(&events[4..]));
    for name in ["fast", "slow"] {
        pass(&fixture, name, 1, |_| {}).await;
    }
    purge_old(&fixture).await;
    check_gone(&fixture).await;
}

/// An event that all destinations have passed is kept for its retention and deleted some time after
/// it.
pub async fn no_event_goes_before_its_retention<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.emit(vec![event("old")]).await;
    fixture.clock.advance(Duration::from_secs(2));
    fixture.emit(vec![event("young"), event("newest")]).await;
    pass(&fixture, "d", 3, |_| {}).await;
    fixture
        .clock
        .advance(DAY.saturating_sub(Duration::from_secs(3)));
    assert_eq!(purge_all(&fixture).await, 0);
    fixture.clock.advance(Duration::from_secs(2));
    purge_all(&fixture).await;
    assert!(
        fixture.events().await.len() >= 2,
        "the newer events were deleted"
    );
    assert!(purge_old(&fixture).await > 0);
    check_gone(&fixture).await;
}

/// Repeated purges delete any number of old events.
pub async fn a_purge_deletes_many_events_batch_by_batch<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1_200).await;
    pass(&fixture, "d", 1_200, |_| {}).await;
    assert!(purge_old(&fixture).await >= 1_199);
    check_gone(&fixture).await;
}

/// An event that is parked or a dead letter at a destination can be delivered after any purge.
pub async fn no_event_goes_that_is_parked_or_dead<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(6).await;
    let states = [
        ParkedState::Dead,
        ParkedState::Scheduled,
        ParkedState::Retrying,
        ParkedState::Blocked,
    ];
    let now = fixture.clock.now();
    let park = |(event, state): (&Arc<OutboxEvent>, ParkedState)| {
        steps::park_key(event.position, state, now, "key")
    };
    let parked: Vec<_> = events.iter().zip(states).map(park).collect();
    pass(&fixture, "d", 6, |settlement| settlement.park = parked).await;
    assert!(purge_old(&fixture).await > 0);
    let due = fixture.store().due("d", &[], 10, 0).await;
    let due = due.expect("what is due is read");
    let due: Vec<_> = due.iter().map(|parked| &parked.event).collect();
    assert_eq!(due, [&events[1], &events[2]]);
    let dead = fixture.store().dead_letters("d", 0, 10).await;
    let dead = dead.expect("dead letters are read");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].event, events[0]);
    let discarded = fixture
        .store()
        .discard("d", events[0].position, "not needed")
        .await;
    assert!(discarded.expect("it is discarded"));
    assert!(purge_all(&fixture).await > 0);
    let dead = fixture.store().dead_letters("d", 0, 10).await;
    assert_eq!(dead.expect("dead letters are read").len(), 0);
    let due = fixture.store().due("d", &[], 10, 0).await;
    assert_eq!(due.expect("what is due is read").len(), 2);
}

/// A frontier that has passed everything leads to the next event, also after all events were
/// purged.
pub async fn a_position_is_never_given_twice<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let (_, frontier) = fixture.events_beyond(Frontier::default()).await;
    pass(&fixture, "d", 2, |_| {}).await;
    assert!(purge_old(&fixture).await > 0);
    let fixture = fixture.reopen().await;
    let third = fixture.emit(vec![event("3")]).await;
    let (next, _) = fixture.events_beyond(frontier).await;
    assert_eq!(
        next.iter().map(|one| one.event.id).collect::<Vec<_>>(),
        third
    );
    assert!(next[0].position > events[1].position);
}

/// Reads until this number of events has arrived. The test checks for events beyond it.
async fn read_until<O: Outbox>(store: O, count: usize) -> Vec<Arc<OutboxEvent>> {
    let (mut read, mut frontier) = (Vec::new(), Frontier::default());
    while read.len() < count {
        let batch = store
            .read(&frontier, Shards::ALL, 7)
            .await
            .expect("the outbox is read");
        frontier = batch.frontier;
        if batch.events.is_empty() {
            tokio::task::yield_now().await;
        }
        read.extend(batch.events);
    }
    read
}

/// Commits an event in every even round and rolls one back in every odd round.
async fn write_rounds<K: Keys>(store: K, writer: String, rounds: i64) {
    for round in 0..rounds {
        let mut tx = store.begin(None, Headers::new()).await.expect("it opens");
        let stated = event(&writer).sequence(round);
        tx.emit(stated).expect("an event is emitted");
        if round % 2 == 0 {
            tx.commit().await.expect("it is committed");
        } else {
            tx.rollback().await;
        }
    }
}

/// Makes a destination pass the next `count` events.
async fn pass<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    destination: &str,
    count: usize,
    change: impl FnOnce(&mut Settlement),
) {
    let opened = fixture.open(destination).await;
    let batch = fixture
        .store()
        .read(&opened.checkpoint.frontier, Shards::ALL, count)
        .await;
    let frontier = batch.expect("the outbox is read").frontier;
    let mut passed = steps::settlement(destination, opened.epoch);
    passed.checkpoint = Some(steps::checkpoint(frontier, &[], &[]));
    change(&mut passed);
    fixture.settle(passed).await;
}

/// Purges until there is nothing to purge, now and two and four days later: a store may measure the
/// age of an event from when it first looked at it.
async fn purge_old<S: DeliveriesUnderTest>(fixture: &Fixture<S>) -> u64 {
    let mut gone = purge_all(fixture).await;
    for _ in 0..2 {
        fixture.clock.advance(DAY * 2);
        gone += purge_all(fixture).await;
    }
    gone
}

/// Purges until there is nothing to purge. Returns the number of rows.
async fn purge_all<S: DeliveriesUnderTest>(fixture: &Fixture<S>) -> u64 {
    let mut gone = 0;
    loop {
        let purged = fixture.store().purge_events(DAY, Duration::MAX).await;
        match purged.expect("events are purged") {
            0 => return gone,
            count => gone += count,
        }
    }
}

/// Requires that nothing is left except for what a store keeps to know the last position.
async fn check_gone<S: DeliveriesUnderTest>(fixture: &Fixture<S>) {
    let left = fixture.events().await.len();
    assert!(left <= 1, "{left} events are left");
}
