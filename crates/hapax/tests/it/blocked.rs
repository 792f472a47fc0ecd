//! More blocked order keys than a relay keeps in memory.

use std::{collections::HashMap, time::Duration};

use hapax::{
    delivery::{Checkpoint, Frontier, Park, ParkedState, Settlement},
    event::NewEvent,
    limits::BLOCKED_KEYS,
    relay::Order,
    sink::SinkError,
    store::{Partitions, Settlements},
};
use hapax_testkit::wait::eventually;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

const KEYS: usize = BLOCKED_KEYS + 50;
/// The number of keys whose first event is due in an hour. The first events of the others are not
/// due for weeks.
const DUE: usize = 100;
const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn no_event_overtakes_those_of_its_key_however_many_keys_are_blocked() {
    let stage = Stage::new();
    park_all(&stage).await;
    let first_of_new = i64::try_from(KEYS + DUE).unwrap() + 1;
    let sink = Recorder::new(move |offer| match offer.event.position {
        at if at == first_of_new => Reply::Fail(SinkError::unavailable("down", "not now")),
        _ => Reply::Take,
    });
    let destination = Stage::destination("d", &sink)
        .order(Order::Key)
        .schedule("0s,1h,1h".parse().unwrap());
    let relay = stage.relay(vec![destination]);
    // An event of a key that is not blocked arrives at once. The others do not arrive.
    stage.emit_many(DUE, DUE).await;
    stage.emit(&["new", "free", "new", "free"]).await;
    eventually(PATIENCE, async || sink.taken().len() == 2).await;
    eventually(PATIENCE, async || {
        stage.parked("d").await == parked(KEYS + DUE + 2)
    })
    .await;
    // The failed delivery is recorded in the store only. The next event of its key waits for it all
    // the same.
    stage.emit(&["new", "free"]).await;
    eventually(PATIENCE, async || sink.taken().len() == 3).await;
    eventually(PATIENCE, async || {
        stage.parked("d").await == parked(KEYS + DUE + 3)
    })
    .await;
    sink.now(|_| Reply::Take);
    // The wait after a failure is lengthened by jitter.
    stage.clock.advance(2 * HOUR);
    let all = 3 + 2 * DUE + 3;
    stage.as_time_passes(|| sink.taken().len() == all).await;
    relay.drain().await;
    let taken = sink.taken();
    let mut last: HashMap<i64, i64> = HashMap::new();
    for position in taken {
        let key = key_of(position);
        let before = last.insert(key, position);
        assert!(before < Some(position), "{position} came after {before:?}");
    }
    assert_eq!(stage.parked("d").await, parked(KEYS - DUE));
}

/// The key of an event. The events are numbered in the order in which they are emitted.
fn key_of(position: i64) -> i64 {
    let keys = i64::try_from(KEYS).unwrap();
    let due = i64::try_from(DUE).unwrap();
    match position {
        at if at <= keys => at,
        at if at <= keys + due => at - keys,
        at => -((at - keys - due) % 2) - 1,
    }
}

fn parked(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}

/// Emits an event of each key and parks it for the destination.
async fn park_all(stage: &Stage) {
    stage.emit_many(KEYS, KEYS).await;
    let opened = stage.store.open("d").await.unwrap();
    let park = |number: usize| Park {
        position: i64::try_from(number).unwrap() + 1,
        state: ParkedState::Retrying,
        attempt: 1,
        next_at: stage
            .now()
            .after(if number < DUE { HOUR } else { 1_000 * HOUR }),
        order_key: NewEvent::json("order.created", &0)
            .about("order", format!("k{number}"))
            .aggregate
            .map(|it| format!("{}\n{}", it.kind, it.id)),
        last_error: None,
    };
    let numbers: Vec<usize> = (0..KEYS).collect();
    for some in numbers.chunks(1_000) {
        let frontier = Frontier {
            high: i64::try_from(KEYS).unwrap(),
            snapshot: None,
        };
        let settlement = Settlement {
            destination: "d".to_owned(),
            epoch: opened.epoch,
            checkpoint: Some(Checkpoint {
                frontier,
                ..Checkpoint::default()
            }),
            park: some.iter().copied().map(park).collect(),
            ..Settlement::default()
        };
        stage.store.settle(settlement).await.unwrap();
    }
}
