//! pgbouncer in transaction mode: a request leaves nothing on a server connection that other
//! requests use next.

use futures_util::future::join_all;
use hapax_testkit::postgres::{Pooler, server};

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{Shop, body, database, order_until_answered},
};

/// Server connections, fewer than the services have connections to the pooler.
const CONNECTIONS: usize = 3;
const KEYS: usize = 40;
/// Requests with each key.
const REQUESTS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn express_and_fastapi_share_a_pooler_in_transaction_mode() {
    check_pooled([EXPRESS, FASTAPI]).await;
}

pub(crate) async fn check_pooled(kinds: [Kind; 2]) {
    let database = database().await;
    let pooler = Pooler::before(&server(), CONNECTIONS).await;
    let url = pooler.tcp_url(database.name());
    let shop = Shop::on(database, &url, &kinds).await;
    let (urls, order) = (shop.urls(), body("socks", 1));
    let keys: Vec<String> = (0..KEYS).map(|number| format!("pooled-{number}")).collect();
    let posts = keys.iter().flat_map(|key| {
        (0..REQUESTS).map(|number| order_until_answered(&shop.http, &urls, number, key, &order))
    });
    let answers = join_all(posts).await;
    for (key, same) in keys.iter().zip(answers.chunks(REQUESTS)) {
        for answer in same {
            assert_eq!(answer.status, 201, "{key}: {}", answer.text());
            assert_eq!(answer.body, same[0].body, "{key}");
        }
    }
    shop.check_effects(KEYS).await;
}
