//! The relay on this store: one relay that owns every partition, and two that share a database.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use hapax::{
    Clock, Timestamp,
    admin::{Actor, DeliveryAdmin as _},
    event::{Headers, NewEvent},
    relay::{Destination, Node, Order, Relay, RelayHandle, Settings},
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
    store::{DeadLetters, Keys, Settlements, Transaction},
};
use hapax_postgres::Postgres;
use hapax_testkit::{clock::seeded_random, wait::eventually};

use crate::fixture::{Fixture, PATIENCE, clock};

/// Emits an event whose id is drawn long before its transaction commits.
const LONG: &str = "
    INSERT INTO hapax.outbox_event
        (event_id, type, aggregate_type, aggregate_id, sequence, payload, headers, created_at)
    VALUES (gen_random_uuid(), 'a', 'order', 'long', 1, '{}', '{}', now())";

/// The events that a sink received, by key and number in the order of arrival, and the relay that
/// delivered each.
#[derive(Clone, Default)]
struct Far {
    taken: Arc<Mutex<Vec<(String, i64)>>>,
    /// Whether the sink takes events and never reports a result.
    hangs: Arc<AtomicBool>,
    /// Whether the sink is unavailable.
    is_down: Arc<AtomicBool>,
    /// The sink rejects one offer of so many.
    refuses: Option<usize>,
    offers: Arc<Mutex<usize>>,
}

impl Far {
    fn taken(&self) -> Vec<(String, i64)> {
        self.taken.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.count_of("")
    }

    /// How many different events were received whose key starts with `key`.
    fn count_of(&self, key: &str) -> usize {
        let mut taken = self.taken();
        taken.retain(|(of, _)| of.starts_with(key));
        taken.sort();
        taken.dedup();
        taken.len()
    }
}

impl Sink for Far {
    fn kind(&self) -> &'static str {
        "far"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for offer in offers {
                let number = {
                    let mut offers = self.offers.lock().unwrap();
                    *offers += 1;
                    *offers
                };
                let refuses = self.refuses.is_some_and(|every| number % every == 0);
                if refuses || self.is_down.load(Ordering::SeqCst) {
                    outcomes.push(Err(SinkError::unavailable("told", "told to")));
                    continue;
                }
                let event = &offer.event.event;
                let key = event.aggregate.as_ref().map(|about| about.id.clone());
                let one = (key.unwrap_or_default(), event.sequence.unwrap_or_default());
                self.taken.lock().unwrap().push(one);
                if self.hangs.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                outcomes.push(Ok(Receipt::default()));
            }
            outcomes
        })
    }

    fn batch_max(&self) -> usize {
        10
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn among_writers_and_a_long_one_every_event_arrives_in_the_order_of_its_key() {
    let fixture = Fixture::new().await;
    let far = Far {
        refuses: Some(17),
        ..Far::default()
    };
    let relay = spawn(&fixture.store, &far, None);
    let mut long = begin(&fixture.store).await;
    long.execute(LONG, &[]).await.unwrap();
    let writers = (0..6).map(|key| tokio::spawn(write(fixture.store.clone(), key, 40)));
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    eventually(PATIENCE, async || far.count() == 240).await;
    long.commit().await.unwrap();
    eventually(PATIENCE, async || far.count() == 241).await;
    relay.drain().await;
    check_once_and_in_order(&far.taken());
    let backlog = fixture.store.backlog("far").await.unwrap();
    assert_eq!((backlog.events, backlog.dead), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_killed_relay_had_on_the_wire_is_offered_again_by_the_next() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let far = Far::default();
    far.hangs.store(true, Ordering::SeqCst);
    let first = spawn(&fixture.store, &far, None);
    write(fixture.store.clone(), 1, 60).await;
    eventually(PATIENCE, async || far.count() > 0).await;
    drop(first);
    far.hangs.store(false, Ordering::SeqCst);
    let second = spawn(&beside.store, &far, None);
    eventually(PATIENCE, async || far.count() == 60).await;
    second.drain().await;
    let backlog = beside.store.backlog("far").await.unwrap();
    assert_eq!((backlog.events, backlog.dead), (0, 0));
    let interrupted = "SELECT count(*) FROM hapax.attempt WHERE outcome = 'interrupted'";
    assert!(fixture.count(interrupted).await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_relay_that_is_fenced_settles_nothing_more_and_stops() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let (old, new) = (Far::default(), Far::default());
    let first = spawn(&fixture.store, &old, None);
    write(fixture.store.clone(), 1, 20).await;
    eventually(PATIENCE, async || old.count() == 20).await;
    let second = spawn(&beside.store, &new, None);
    let epoch = "SELECT max(epoch) FROM hapax.lease";
    eventually(PATIENCE, async || fixture.count(epoch).await == 2).await;
    write(fixture.store.clone(), 2, 20).await;
    // Events that the first relay had not settled when it was fenced may arrive here as well.
    eventually(PATIENCE, async || new.count_of("k2") == 20).await;
    eventually(PATIENCE, async || first.stopped("far") == Some("fenced")).await;
    assert_eq!(old.count(), 20);
    second.drain().await;
    first.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_nodes_one_carries_and_the_other_takes_over_when_it_dies() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let (one, two) = (Far::default(), Far::default());
    let first = spawn(&fixture.store, &one, Some("one"));
    write(fixture.store.clone(), 1, 20).await;
    eventually(PATIENCE, async || one.count() == 20).await;
    let second = spawn(&beside.store, &two, Some("two"));
    eventually(PATIENCE, async || {
        [&first, &second].map(|relay| relay.stopped("far")) == [None, Some("standby")]
            || [&first, &second].map(|relay| relay.stopped("far")) == [Some("standby"), None]
    })
    .await;
    write(fixture.store.clone(), 2, 20).await;
    let count = |key| one.count_of(key) + two.count_of(key);
    eventually(PATIENCE, async || count("k2") >= 20).await;
    // The relay that owns the destination dies without releasing it.
    let (dying, living, far) = if first.stopped("far").is_none() {
        (first, second, &two)
    } else {
        (second, first, &one)
    };
    drop(dying);
    write(beside.store.clone(), 3, 20).await;
    // Events that the dead relay had not settled are offered again, so duplicates are possible.
    eventually(PATIENCE, async || far.count_of("k3") == 20).await;
    assert_eq!(living.stopped("far"), None);
    living.drain().await;
    let held = "SELECT count(*) FROM hapax.lease WHERE node IS NOT NULL";
    assert_eq!(
        fixture.count(held).await,
        0,
        "a drained relay still owns a partition"
    );
}

/// If one node schedules a retry in one second, it is due in one second on a node whose clock is
/// hours off.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_whose_clocks_are_hours_apart_go_by_one_schedule() {
    let right = Fixture::new().await;
    let hours = i64::try_from(Duration::from_hours(2).as_millis()).unwrap();
    for (number, off) in [(1, hours), (2, -hours)] {
        let clock = clock();
        let skewed = Clock::new(move || Timestamp::from_millis(clock.now().as_millis() + off));
        let database = Arc::clone(&right.database);
        let ahead = Fixture::on(database, |settings| settings.clock = skewed).await;
        let (failing, taking) = (
            Far {
                refuses: Some(1),
                ..Far::default()
            },
            Far::default(),
        );
        let first = spawn_at(&ahead.store, &failing, "1s", &format!("ahead-{number}"));
        write(right.store.clone(), number, 1).await;
        let tried = format!("SELECT count(*) FROM hapax.attempt WHERE id >= {number}");
        eventually(PATIENCE, async || right.count(&tried).await > 0).await;
        first.drain().await;
        let second = spawn_at(&right.store, &taking, "1s", &format!("right-{number}"));
        eventually(PATIENCE, async || taking.count() == 1).await;
        second.drain().await;
    }
}

/// Two events with the header that only the keyring writes, inserted by another program, and then a
/// valid one.
const MARKED: &str = r#"
    INSERT INTO hapax.outbox_event
        (event_id, type, aggregate_type, aggregate_id, sequence, payload, headers, created_at)
    VALUES
        (gen_random_uuid(), 'a', 'order', 'json', 1, '{"card": 4242}',
         '{"hapax-encrypted-under": "k1"}', now()),
        (gen_random_uuid(), 'a', 'order', 'bytes', 1, encode(sha256('x') || sha256('y'), 'base64'),
         '{"content-type": "x/y", "hapax-encrypted-under": "0011223344556677"}', now()),
        (gen_random_uuid(), 'a', 'order', 'good', 1, '{}', '{}', now())"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_that_says_it_is_encrypted_and_is_not_is_a_dead_letter_and_stops_nobody() {
    let fixture = Fixture::new().await;
    fixture.run(MARKED).await;
    let far = Far::default();
    let relay = spawn(&fixture.store, &far, None);
    eventually(PATIENCE, async || {
        let dead = fixture.count("SELECT count(*) FROM hapax.delivery WHERE state = 'dead'");
        far.count() == 1 && dead.await == 2
    })
    .await;
    assert_eq!(far.count_of("good"), 1);
    let letters = fixture.store.dead_letters("far", 0, 10).await.unwrap();
    assert_eq!(letters.len(), 2);
    for letter in &letters {
        let reason = &letter.last_error;
        assert!(reason.contains("hapax-encrypted-under"), "{reason}");
        assert_eq!(letter.attempts, 1, "{letter:?}");
    }
    // An operator who has checked such an event delivers it as it is: the header is removed, the
    // payload stays.
    let (ops, position) = (Actor::new("ops"), letters[0].event.position);
    fixture
        .store
        .edit_dead_letter(&ops, "far", position, "{}")
        .await
        .unwrap();
    eventually(PATIENCE, async || far.count_of("json") == 1).await;
    relay.drain().await;
}

/// The clock of the relay stands still, so that an open breaker never ends its wait by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_an_operator_retries_now_does_not_wait_for_the_open_breaker() {
    let fixture = Fixture::new().await;
    let far = Far::default();
    far.is_down.store(true, Ordering::SeqCst);
    let stopped_at = clock().now();
    let destination = Destination::new("far", Arc::new(far.clone()))
        .order(Order::None)
        .schedule("0s,1h".parse().unwrap());
    let settings = Settings::new(Clock::new(move || stopped_at), seeded_random(2));
    let store = &fixture.store;
    let relay = Relay::spawn(store, vec![destination], &settings, &store.notifier());
    write(store.clone(), 1, 12).await;
    let waiting = "SELECT count(*) FROM hapax.delivery WHERE state = 'retrying'";
    eventually(PATIENCE, async || fixture.count(waiting).await >= 10).await;
    far.is_down.store(false, Ordering::SeqCst);
    let first = "SELECT min(position) FROM hapax.delivery WHERE state = 'retrying'";
    let position = fixture.count(first).await;
    let ops = Actor::new("ops");
    let retried = store.retry_delivery_now(&ops, "far", position).await;
    retried.unwrap();
    let arrived = format!(
        "SELECT count(*) FROM hapax.delivery WHERE state = 'delivered' AND position = {position}"
    );
    eventually(PATIENCE, async || fixture.count(&arrived).await == 1).await;
    // The others keep their schedule.
    assert!(fixture.count(waiting).await > 0);
    relay.drain().await;
}

fn spawn_at(store: &Postgres, far: &Far, wait: &str, node: &str) -> RelayHandle {
    let schedule = format!("0s,{wait},{wait},{wait},{wait},{wait}");
    let destination =
        Destination::new("far", Arc::new(far.clone())).schedule(schedule.parse().unwrap());
    let mut settings = Settings::new(store.database_clock(), seeded_random(2));
    settings.node = Some(Node::new(node));
    Relay::spawn(store, vec![destination], &settings, &store.notifier())
}

fn spawn(store: &Postgres, far: &Far, node: Option<&str>) -> RelayHandle {
    let destination = Destination::new("far", Arc::new(far.clone()))
        .order(Order::Key)
        .schedule(["0s"; 60].join(",").parse().unwrap());
    let mut settings = Settings::new(clock(), seeded_random(2));
    settings.node = node.map(|name| Node {
        name: name.to_owned(),
        lease: Duration::from_secs(1),
    });
    Relay::spawn(store, vec![destination], &settings, &store.notifier())
}

fn event(key: &str, number: i64) -> NewEvent {
    NewEvent::json("order.created", &number)
        .about("order", key)
        .sequence(number)
}

async fn begin(store: &Postgres) -> hapax_postgres::Tx {
    store.begin(None, Headers::new()).await.unwrap()
}

/// Commits the events of one key one after another, and rolls one back now and then.
async fn write(store: Postgres, key: usize, count: i64) {
    let key = format!("k{key}");
    for number in 1..=count {
        let mut tx = begin(&store).await;
        tx.emit(event(&key, number)).unwrap();
        if number % 5 == 0 {
            tx.rollback().await;
            tx = begin(&store).await;
            tx.emit(event(&key, number)).unwrap();
        }
        tx.commit().await.unwrap();
    }
}

#[track_caller]
fn check_once_and_in_order(taken: &[(String, i64)]) {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, number) in taken {
        let before = last.insert(key, *number).unwrap_or(0);
        assert_eq!(*number, before + 1, "key {key}");
    }
}
