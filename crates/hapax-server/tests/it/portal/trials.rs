//! Trials in the portal: their number at the same time is limited for each tenant.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::Method;

use super::Stage;
use crate::store::{Home, Store};

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_with_two_trials_has_no_third_and_leaves_places_to_others() {
    let stage = Stage::new(Store::Postgres).await;
    let alice = stage.open("alice", "write").await;
    let bob = stage.open("bob", "write").await;
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    let own = format!("seal={}&action=try", alice.seal().await);
    let others = format!("seal={}&action=try", bob.seal().await);
    let Home::Server(database) = &stage.home else {
        panic!("the database is a file");
    };
    let holder = database.client().await;
    // A trial cannot end before the events can be read. The partitions are not locked: together with
    // the relay, which locks them in another order, that could be a deadlock.
    let lock = "BEGIN; LOCK TABLE ONLY hapax.outbox_event IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.unwrap();
    let change = format!("/portal/endpoints/{id}");
    let create = "/portal/endpoints";
    let ask = |path| alice.send(Method::POST, path, &stage.url, &own);
    let paths = [create, change.as_str(), create];
    let mut trials: FuturesUnordered<_> = paths.into_iter().map(ask).collect();
    let refused = trials.next().await.unwrap();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Settings that are not valid are refused before events are read, and after the place is taken.
    let wrong = "mapping=%7B";
    for path in [create, &change] {
        let own = format!("{own}&{wrong}");
        let tried = alice.send(Method::POST, path, &stage.url, &own).await;
        assert_eq!(tried.status, 429, "{path}: {}", tried.text());
    }
    let others = format!("{others}&{wrong}");
    let tried = bob.send(Method::POST, create, &stage.url, &others).await;
    assert_eq!(tried.status, 400, "{}", tried.text());
    holder.batch_execute("COMMIT").await.unwrap();
    for tried in trials.collect::<Vec<_>>().await {
        assert_eq!(tried.status, 200, "{}", tried.text());
    }
    stage.relay.stop().await;
}
