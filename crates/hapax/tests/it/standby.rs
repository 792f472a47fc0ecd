//! Relays that share a store: each partition is owned by one of them, and another relay takes it
//! over when the owner ends.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    relay::{Destination, Node, Relay, RelayHandle, Settings},
    sink::{Receipt, SinkError},
};
use hapax_testkit::{clock::seeded_random, wait::eventually};

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

const D: &str = "d";
const LEASE: Duration = Duration::from_millis(500);
const MOMENT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_relay_that_stands_by_takes_over_from_one_that_died() {
    let (stage, sink, [owner, waiting]) = two_that_take().await;
    drop(owner);
    // After the last heartbeat that the owner may have sent before it died.
    stage.emit(&["b"]).await;
    stage.clock.advance(LEASE);
    eventually(PATIENCE, async || sink.taken() == [1, 2]).await;
    assert_eq!(waiting.stopped(D), None);
    waiting.drain().await;
}

#[tokio::test]
async fn what_the_dead_one_had_on_the_wire_is_offered_again_and_nothing_else() {
    let stage = Stage::new();
    let sink = Recorder::except(5, || Reply::TakeAndHang);
    let [owner, waiting] = two_relays(&stage, &sink).await;
    stage.emit_many(8, 8).await;
    eventually(PATIENCE, async || sink.taken().len() == 9).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 1).await;
    drop(owner);
    sink.now(|_| Reply::Take);
    // After the last heartbeat that the owner may have sent before it died.
    stage.execute("SELECT 1").await;
    stage.clock.advance(LEASE);
    eventually(PATIENCE, async || sink.taken().len() == 10).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    assert_eq!(sink.counts()[&5], 2);
    assert_eq!(sink.taken().len(), 10);
    waiting.drain().await;
}

#[tokio::test]
async fn a_relay_that_lives_keeps_what_it_carries() {
    let (stage, _sink, [owner, waiting]) = two_that_take().await;
    time_passes(&stage, || {
        assert_eq!(owner.stopped(D), None);
        assert_eq!(waiting.stopped(D), Some("standby"));
    })
    .await;
}

#[tokio::test]
async fn a_relay_is_alive_from_one_sign_of_life_to_the_next() {
    let (stage, _sink, [owner, waiting]) = two_that_take().await;
    for _ in 0..15 {
        stage.clock.advance(LEASE / 5);
        let now = stage.clock.now();
        eventually(PATIENCE, async || last_signs(&stage).await >= now).await;
        assert_eq!(owner.stopped(D), None);
        assert_eq!(waiting.stopped(D), Some("standby"));
    }
}

#[tokio::test]
async fn a_relay_that_stands_by_enables_no_destination_that_another_disabled() {
    let (stage, sink, [owner, waiting]) = two_that_take().await;
    sink.now(|_| {
        Reply::Fail(SinkError::Gone {
            receipt: Receipt::default(),
            source: "410".into(),
        })
    });
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || owner.stopped(D) == Some("disabled")).await;
    let offers = sink.offers().len();
    time_passes(&stage, || {
        assert_eq!(owner.stopped(D), Some("disabled"));
        assert_eq!(sink.offers().len(), offers);
    })
    .await;
    drop(waiting);
}

#[tokio::test]
async fn a_relay_that_drains_hands_over_at_once_and_repeats_nothing() {
    let (stage, sink, [owner, waiting]) = two_that_take().await;
    stage.emit_many(50, 5).await;
    eventually(PATIENCE, async || sink.taken().len() > 10).await;
    owner.drain().await;
    // No time of its lease has passed.
    eventually(PATIENCE, async || waiting.stopped(D).is_none()).await;
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.counts().len() == 52).await;
    assert!(sink.counts().values().all(|offers| *offers == 1));
    waiting.drain().await;
}

#[tokio::test]
async fn a_relay_that_comes_again_under_its_name_has_at_once_what_it_held() {
    let (stage, sink, [owner, waiting]) = two_that_take().await;
    drop(owner);
    let again = relay(&stage, "a", &[(D, &sink)]);
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.taken() == [1, 2]).await;
    assert_eq!(
        (again.stopped(D), waiting.stopped(D)),
        (None, Some("standby"))
    );
}

#[tokio::test]
async fn a_relay_that_joins_gets_its_share_and_nothing_is_repeated() {
    let stage = Stage::new();
    let (x, y) = (Recorder::taking(), Recorder::taking());
    let places = [("x", &x), ("y", &y)];
    let first = relay(&stage, "a", &places);
    stage.emit_many(100, 9).await;
    eventually(PATIENCE, async || x.taken().len() + y.taken().len() > 50).await;
    let second = relay(&stage, "b", &places);
    let carried = |relay: &RelayHandle| {
        ["x", "y"]
            .map(|name| relay.stopped(name).is_none())
            .iter()
            .filter(|it| **it)
            .count()
    };
    // A partition that the relay has not tried to take yet is not reported as standby.
    eventually(PATIENCE, async || first.stopped("y") == Some("standby")).await;
    stage.emit_many(100, 9).await;
    eventually(PATIENCE, async || x.taken().len() + y.taken().len() == 400).await;
    assert_eq!((carried(&first), carried(&second)), (1, 1));
    for sink in [&x, &y] {
        assert!(sink.counts().values().all(|offers| *offers == 1));
    }
}

/// A receiver that is slow to respond delays the release. If the other relay leaves in the meantime,
/// the partition is served again at once.
#[tokio::test]
async fn a_partition_that_is_to_be_kept_after_all_goes_on_beside_a_slow_attempt() {
    let stage = Stage::new();
    let x = Recorder::taking();
    let y = Recorder::except(1, || Reply::TakeAndHang);
    let places = [("x", &x), ("y", &y)];
    let first = relay(&stage, "a", &places);
    stage.emit(&["slow"]).await;
    eventually(PATIENCE, async || y.hanging() == [1]).await;
    let second = relay(&stage, "b", &places);
    // The first relay stops to offer: it releases `y` when the slow attempt has ended.
    eventually(PATIENCE, async || {
        stage.emit(&["other"]).await;
        x.taken().len() > y.taken().len() + 5
    })
    .await;
    second.drain().await;
    eventually(PATIENCE / 4, async || x.taken().len() == y.taken().len()).await;
    assert_eq!(y.hanging(), [1]);
    assert_eq!(y.counts()[&1], 1);
    assert_eq!(first.stopped("y"), None);
}

#[tokio::test]
async fn nothing_is_let_go_for_a_relay_that_does_not_know_it() {
    let stage = Stage::new();
    let (sink, others) = (Recorder::taking(), Recorder::taking());
    let owner = relay(&stage, "b", &[(D, &sink), ("e", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || sink.taken().len() == 2).await;
    let stranger = relay(&stage, "a", &[("x", &others)]);
    eventually(PATIENCE, async || others.taken().len() == 1).await;
    time_passes(&stage, || {
        assert_eq!((owner.stopped(D), owner.stopped("e")), (None, None));
    })
    .await;
    drop(stranger);
}

#[tokio::test]
async fn a_relay_that_stands_by_drains_at_once() {
    let (_stage, _sink, [owner, waiting]) = two_that_take().await;
    waiting.drain().await;
    assert_eq!(owner.stopped(D), None);
}

/// The first relay owns the destination and has delivered one event. The second waits.
async fn two_relays(stage: &Stage, sink: &Recorder) -> [RelayHandle; 2] {
    let first = relay(stage, "a", &[(D, sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || sink.taken() == [1]).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    let second = relay(stage, "b", &[(D, sink)]);
    eventually(PATIENCE, async || second.stopped(D) == Some("standby")).await;
    [first, second]
}

/// Two relays whose receiver takes everything.
async fn two_that_take() -> (Stage, Recorder, [RelayHandle; 2]) {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let relays = two_relays(&stage, &sink).await;
    (stage, sink, relays)
}

/// Two processes with one name.
#[tokio::test]
async fn a_relay_takes_nothing_from_another_that_lives_under_its_name() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let first = relay_of(&stage, "a", 2, &[(D, &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    let second = relay_of(&stage, "a", 3, &[(D, &sink)]);
    assert_ne!(first.identity(), second.identity());
    eventually(PATIENCE, async || second.stopped(D) == Some("standby")).await;
    sink.now(|_| Reply::TakeAndHang);
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.taken() == [1, 2]).await;
    time_passes(&stage, || {
        assert_eq!(first.stopped(D), None);
        assert_eq!(second.stopped(D), Some("standby"));
        assert_eq!(sink.taken(), [1, 2]);
    })
    .await;
    let both = || (first.namesakes(), second.namesakes());
    eventually(PATIENCE, async || {
        stage.clock.advance(MOMENT);
        both() == (1, 1)
    })
    .await;
    drop(second);
    stage.execute("SELECT 1").await;
    stage.clock.advance(LEASE);
    eventually(PATIENCE, async || first.namesakes() == 0).await;
}

/// A process that was killed and is restarted waits for the lease of its predecessor.
#[tokio::test]
async fn a_relay_that_comes_again_under_its_name_has_its_partitions_after_a_lease() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let first = relay_of(&stage, "a", 2, &[(D, &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    drop(first);
    stage.emit(&["b"]).await;
    let second = relay_of(&stage, "a", 3, &[(D, &sink)]);
    eventually(PATIENCE, async || second.stopped(D) == Some("standby")).await;
    stage.clock.advance(LEASE);
    eventually(PATIENCE, async || sink.taken() == [1, 2]).await;
    assert_eq!(second.namesakes(), 0);
    second.drain().await;
}

fn relay(stage: &Stage, name: &str, places: &[(&str, &Recorder)]) -> RelayHandle {
    relay_of(stage, name, 2, places)
}

fn relay_of(stage: &Stage, name: &str, seed: u64, places: &[(&str, &Recorder)]) -> RelayHandle {
    let mut settings = Settings::new(stage.clock.clock(), seeded_random(seed));
    settings.node = Some(Node {
        name: name.to_owned(),
        lease: LEASE,
    });
    let destinations = places.iter().map(|(name, sink)| {
        Destination::new(*name, Arc::new((*sink).clone())).schedule("0s,1s,1s".parse().unwrap())
    });
    let wake = stage.store.notifier();
    Relay::spawn(&stage.store, destinations.collect(), &settings, &wake)
}

/// The oldest of the last heartbeats of all relays.
async fn last_signs(stage: &Stage) -> Timestamp {
    const LAST: &str = "SELECT min(seen_at) FROM hapax_node";
    let seen = stage
        .store
        .read(|conn| conn.query_row(LAST, [], |row| row.get(0)));
    Timestamp::from_millis(seen.await.unwrap())
}

/// Advances the clock by two leases in small steps.
async fn time_passes(stage: &Stage, check: impl Fn()) {
    let mut passed = Duration::ZERO;
    eventually(PATIENCE, async || {
        stage.clock.advance(MOMENT);
        passed += MOMENT;
        check();
        passed >= 2 * LEASE
    })
    .await;
}
