//! SIGKILL between any two messages of a request to the database.
//!
//! A message has one statement, or the statements that a driver sends together, of which the server
//! executes all or none if the service is killed. A proxy holds the response to one message. The
//! service is killed while it waits for it, and started again. The client repeats its request, and
//! there is one effect. The next round does the same at the next message, until a request has no
//! further one.

use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_testkit::{
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{LONG, Shop, body, database, order_once, order_until_answered},
};

/// A request has at least these: BEGIN, claim, SAVEPOINT, INSERT, complete and COMMIT.
const STATEMENTS_MIN: usize = 6;
/// Drivers that send BEGIN, claim and SAVEPOINT in one message, and complete and COMMIT.
const BATCHING: &[&str] = &["asyncpg", "django-orm", "pg", "postgres-js", "sqlalchemy"];
const MESSAGES_MIN: usize = 3;
/// A request with more statements than this does not end.
const STATEMENTS_MAX: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn express_killed_between_any_two_statements_creates_one_order() {
    check_statements(EXPRESS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fastapi_killed_between_any_two_statements_creates_one_order() {
    check_statements(FASTAPI).await;
}

pub(crate) async fn check_statements(kind: Kind) {
    let database = database().await;
    let proxy = Proxy::to_postgres(database.address());
    let url = proxy.url(&database.url());
    let mut shop = Shop::on(database, &url, &[kind]).await;
    let mut killed = 0;
    while kill_after(killed, &proxy, &mut shop).await {
        killed += 1;
        shop.check_effects(killed).await;
        assert!(killed < STATEMENTS_MAX, "a request has no last statement");
    }
    let least = if BATCHING.contains(&kind.driver) {
        MESSAGES_MIN
    } else {
        STATEMENTS_MIN
    };
    assert!(killed >= least, "{killed} messages");
    shop.check_effects(killed + 1).await;
}

/// Kills the service after the statement with this number, and repeats the request. Returns false if
/// the request ended before it.
async fn kill_after(number: usize, proxy: &Proxy, shop: &mut Shop) -> bool {
    let trap = proxy.once(statement(number), Deed::HoldAfter);
    let (key, order) = (format!("killed-{number}"), body("socks", 1));
    let urls = shop.urls();
    let sent = {
        let (http, url) = (shop.http.clone(), urls[0].clone());
        let (key, order) = (key.clone(), order.clone());
        tokio::spawn(async move { order_once(&http, &url, &key, &order).await })
    };
    eventually(LONG, async || trap.count() > 0 || sent.is_finished()).await;
    let is_held = trap.count() > 0;
    if is_held {
        shop.services[0].kill();
        // The server sees the end of the connection as if the machine had failed.
        proxy.reset();
    }
    proxy.heal().await;
    let answer = sent.await.expect("the request does not panic");
    if !is_held {
        let answer = answer.expect("the service responds");
        assert_eq!(answer.status, 201, "{}", answer.text());
        return false;
    }
    assert!(
        answer.is_none(),
        "a killed service has responded: {answer:?}"
    );
    shop.services[0].start_again();
    shop.are_up().await;
    let answer = order_until_answered(&shop.http, &urls, 0, &key, &order).await;
    assert_eq!(answer.status, 201, "after {number}: {}", answer.text());
    true
}

/// The execution of the statement with this number, counted from now.
fn statement(number: usize) -> Moment {
    let seen = AtomicUsize::new(0);
    Moment::statement(move |_| seen.fetch_add(1, Ordering::SeqCst) == number)
}
