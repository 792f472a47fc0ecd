//! One kill at a known moment, and what the retry gets.

use std::time::Duration;

use hapax_testkit::{
    on_both_stores,
    proxy::{Direction, Fault, Proxy},
    wait::{answered, eventually, pace},
};
use tokio::time::Instant;

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::Upstream,
    wire::{Connection, PATIENCE, exchange, order},
};

on_both_stores! {
    a_gateway_that_is_killed_while_it_waits_leaves_an_unknown_outcome,
    a_gateway_that_is_killed_before_the_client_has_the_answer_replays_it,
    a_gateway_that_is_killed_at_a_commit_acts_at_most_once,
    a_gateway_that_is_killed_between_its_commits_leaves_an_unknown_outcome,
    a_gateway_that_is_stopped_for_longer_than_its_lease_sends_nothing_after_it,
}

async fn a_gateway_that_is_killed_while_it_waits_leaves_an_unknown_outcome(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let settings = configuration(upstream.address(), "");
    let mut gateway = Gateway::start(&home, &settings).await;
    for round in 0..3 {
        let key = format!("waits-{round}");
        let mut client = Connection::open(gateway.address()).await.unwrap();
        client.send(&order(&key, "slow-head=900")).await.unwrap();
        eventually(PATIENCE, async || upstream.lines_of(&key).len() == 1).await;
        gateway.kill();
        assert!(client.answer().await.is_err(), "the gateway was killed");
        gateway.restart().await;
        // The key stays with the dead gateway until its lease has expired.
        let decided = gateway.decided(&key).await;
        assert!(decided.is_unknown(), "{}", decided.text());
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
}

async fn a_gateway_that_is_killed_before_the_client_has_the_answer_replays_it(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let settings = configuration(upstream.address(), "");
    let mut gateway = Gateway::start(&home, &settings).await;
    // Between the client and the gateway: the answer is swallowed.
    let proxy = Proxy::to(gateway.address().to_string());
    for round in 0..3 {
        let key = format!("swallowed-{round}");
        proxy.set(Direction::ToClient, Fault::BlackHole);
        let before = proxy.tally().swallowed;
        let mut client = Connection::open(proxy.address()).await.unwrap();
        client.send(&order(&key, "")).await.unwrap();
        eventually(PATIENCE, async || proxy.tally().swallowed > before).await;
        let replay = gateway.order(&key, "").await;
        assert_eq!(replay.status, 201, "{}", replay.text());
        gateway.kill();
        proxy.heal().await;
        drop(client);
        gateway.restart().await;
        let after = gateway.order(&key, "").await;
        assert_eq!((after.status, &after.body), (201, &replay.body));
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
}

async fn a_gateway_that_is_killed_at_a_commit_acts_at_most_once(on: Store) {
    const COMMITS_MAX: usize = 12;
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let settings = configuration(upstream.address(), "");
    // The first start creates the tables, so that the others commit nothing for them.
    let mut gateway = Gateway::start(&home, &settings).await;
    let prefix = match on {
        Store::Sqlite => "sqlite.commit",
        Store::Postgres => "postgres.commit",
    };
    let (mut killed, mut answered, mut unknown) = (0, 0, 0);
    for place in ["before", "after"] {
        for nth in 1..=COMMITS_MAX {
            let key = format!("{place}-{nth}");
            let failpoint = format!("{prefix}.{place}:{nth}");
            if !gateway.restart_at(Some(&failpoint)).await {
                // It was killed at a commit of its start.
                gateway.restart().await;
                continue;
            }
            let first = exchange(gateway.address(), &order(&key, "")).await;
            let is_past = first.is_ok() && !gateway.has_ended();
            if !is_past {
                gateway.ended().await;
            }
            gateway.restart().await;
            let decided = gateway.decided(&key).await;
            let lines = upstream.lines_of(&key);
            assert!(lines.len() <= 1, "{failpoint}: {lines:?}");
            if decided.status == 201 {
                assert_eq!(lines.len(), 1, "{failpoint}");
            }
            if let Ok(first) = first
                && first.status == 201
            {
                assert_eq!(decided.body, first.body, "{failpoint}");
            }
            if is_past {
                break;
            }
            killed += 1;
            answered += usize::from(decided.status == 201);
            unknown += usize::from(decided.is_unknown());
        }
    }
    // The key with the phase `sent` is committed, and the response. After a kill before the first commit
    // the retry is sent, after one behind the second it gets a replay, and between them the outcome is
    // unknown.
    assert!(killed >= 4, "{killed} kills at commits");
    assert!(answered >= 1, "no retry was answered");
    assert!(unknown >= 1, "no outcome was unknown");
    assert_eq!(gateway.order("after", "").await.status, 201);
}

/// The failpoints between the commits, and how often the service acts.
const BETWEEN: [(&str, usize); 3] = [
    ("gateway.send.before:1", 0),
    ("gateway.send.after:1", 1),
    ("gateway.response.read:1", 1),
];

async fn a_gateway_that_is_killed_between_its_commits_leaves_an_unknown_outcome(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let settings = configuration(upstream.address(), "");
    let mut gateway = Gateway::start(&home, &settings).await;
    for (number, (failpoint, acted)) in BETWEEN.into_iter().enumerate() {
        let key = format!("between-{number}");
        assert!(gateway.restart_at(Some(failpoint)).await, "{failpoint}");
        let first = exchange(gateway.address(), &order(&key, "")).await;
        assert!(first.is_err(), "{failpoint}: {first:?}");
        gateway.ended().await;
        gateway.restart().await;
        let decided = gateway.decided(&key).await;
        assert!(decided.is_unknown(), "{failpoint}: {}", decided.text());
        assert_eq!(upstream.lines_of(&key).len(), acted, "{failpoint}");
    }
}

async fn a_gateway_that_is_stopped_for_longer_than_its_lease_sends_nothing_after_it(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let settings = configuration(upstream.address(), "");
    let gateway = Gateway::start(&home, &settings).await;
    for round in 0..2 {
        let key = format!("stopped-{round}");
        let mut client = Connection::open(gateway.address()).await.unwrap();
        client.send(&order(&key, "slow-head=300")).await.unwrap();
        eventually(PATIENCE, async || upstream.lines_of(&key).len() == 1).await;
        gateway.signal("STOP");
        // On PostgreSQL another gateway takes the key over when the lease has expired. A file belongs
        // to one process, so there the retry waits for the same gateway.
        let decided = if on == Store::Postgres {
            let other = Gateway::start(&home, &settings).await;
            let decided = other.decided(&key).await;
            assert!(decided.is_unknown(), "{}", decided.text());
            gateway.signal("CONT");
            decided
        } else {
            pace(Duration::from_secs(2)).await;
            gateway.signal("CONT");
            gateway.decided(&key).await
        };
        let answer = client.answer().await.unwrap();
        assert_eq!(
            answer.status == 201,
            decided.status == 201,
            "{}",
            answer.text()
        );
        let after = gateway.decided(&key).await;
        assert_eq!(after.is_unknown(), decided.is_unknown(), "{}", after.text());
        assert_eq!(upstream.lines_of(&key).len(), 1);
    }
}

/// How long a failpoint with `wait` blocks, and some more.
const BLOCKED: Duration = Duration::from_millis(3_500);

/// The gateway has committed that it sends, and is stopped before the first byte. Meanwhile its lease
/// expires, and an operator who finds nothing in the service decides that nothing happened.
///
/// When it wakes up, only the look at its lease keeps it from sending: it continues at once, it has an
/// idle connection, the time of the route has not run out, and it cannot have heard yet that it has
/// lost the key.
#[tokio::test]
async fn a_gateway_that_wakes_up_after_a_decision_sends_nothing() {
    let upstream = Upstream::python();
    let home = Home::fresh(Store::Postgres).await;
    let settings = configuration(upstream.address(), "");
    let settings = settings.replace("timeout = \"1s\"", "timeout = \"25s\"");
    let mut sleeper = Gateway::start(&home, &settings).await;
    let failpoint = "gateway.send.before:2:wait";
    assert!(
        sleeper.restart_at(Some(failpoint)).await,
        "{}",
        sleeper.log()
    );
    assert_eq!(sleeper.order("before", "").await.status, 201);
    let mut client = Connection::open(sleeper.address()).await.unwrap();
    client.send(&order("sleeps", "")).await.unwrap();
    eventually(PATIENCE, async || {
        sleeper.log().contains("gateway.send.before reached")
    })
    .await;
    let reached = Instant::now();
    sleeper.signal("STOP");
    let other = Gateway::start(&home, &settings).await;
    assert!(other.decided("sleeps").await.is_unknown());
    assert!(upstream.lines_of("sleeps").is_empty());
    other.decide_did_not_happen("sleeps");
    assert_eq!(other.order("sleeps", "").await.status, 201);
    pace(BLOCKED.saturating_sub(reached.elapsed())).await;
    sleeper.signal("CONT");
    // It answers when it has noticed that it has lost the key.
    let answer = answered(PATIENCE, client.answer()).await;
    assert_eq!(upstream.lines_of("sleeps").len(), 1, "{answer:?}");
}
