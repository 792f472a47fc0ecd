//! Kills of processes and terminated sessions in the middle of transactions, under load.
//!
//! The tests check that every acknowledged order exists, that none exists twice, and that each
//! order has its event.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use hapax_testkit::{http::HttpClient, wait::Patience};
use tokio::task::JoinSet;

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{LONG, Shop, body, order_until_answered},
};

const KILLS: usize = 12;
const CLIENTS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn fastapi_killed_in_mid_transaction_loses_nothing_and_repeats_nothing() {
    check_kills(FASTAPI).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn express_killed_in_mid_transaction_loses_nothing_and_repeats_nothing() {
    check_kills(EXPRESS).await;
}

async fn check_kills(kind: Kind) {
    let mut shop = Shop::open(&[kind; 2]).await;
    let load = Load::start(&shop);
    for kill in 0..KILLS {
        let victim = in_mid_transaction(&shop).await;
        if kill % 4 == 3 {
            // The process keeps running, but its sessions are closed.
            cut_sessions(&shop, &victim).await;
        } else {
            shop.kill_and_restart(&victim);
        }
        load.goes_on().await;
    }
    let answered = load.stop().await;
    shop.check_effects(answered.len()).await;
    for (item, order) in answered {
        let sql = "SELECT count(*) FROM shop_order WHERE item = $1 AND id = $2";
        let found = shop.client.query_one(sql, &[&item, &order]).await;
        assert_eq!(found.expect("a count").get::<_, i64>(0), 1, "{item}");
    }
}

/// Waits until one of the processes is in the middle of a transaction, and returns its name.
async fn in_mid_transaction(shop: &Shop) -> String {
    const SQL: &str = "
        SELECT application_name FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'shop%'
          AND (state = 'idle in transaction' OR state = 'active' AND query LIKE '%hapax.%')
        ORDER BY random() LIMIT 1";
    let patience = Patience::within(LONG);
    loop {
        if let Some(row) = shop.client.query_opt(SQL, &[]).await.expect("valid SQL") {
            return row.get(0);
        }
        patience.pause().await;
    }
}

async fn cut_sessions(shop: &Shop, name: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = $1";
    shop.client
        .query(sql, &[&name])
        .await
        .expect("the sessions can be terminated");
}

/// Clients that send a new order as soon as the last one was acknowledged.
struct Load {
    clients: JoinSet<Vec<(String, String)>>,
    acknowledged: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Load {
    fn start(shop: &Shop) -> Self {
        let (acknowledged, over) = (Arc::default(), Arc::default());
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (acknowledged, over) = (Arc::clone(&acknowledged), Arc::clone(&over));
            let (http, urls) = (shop.http.clone(), shop.urls());
            clients.spawn(order_on(client, http, urls, acknowledged, over));
        }
        Self {
            clients,
            acknowledged,
            over,
        }
    }

    /// Waits until as many orders as there are clients have been acknowledged.
    async fn goes_on(&self) {
        let seen = self.acknowledged.load(Ordering::Relaxed);
        let patience = Patience::within(LONG);
        while self.acknowledged.load(Ordering::Relaxed) < seen + CLIENTS {
            patience.pause().await;
        }
    }

    async fn stop(self) -> Vec<(String, String)> {
        self.over.store(true, Ordering::Relaxed);
        self.clients.join_all().await.concat()
    }
}

/// Sends orders until `over` is set; returns the items and ids of the acknowledged orders.
async fn order_on(
    client: usize,
    http: HttpClient,
    urls: Vec<String>,
    acknowledged: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
) -> Vec<(String, String)> {
    let mut answered = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let item = format!("item {client} {}", answered.len());
        let key = format!("key-{client}-{}", answered.len());
        let answer = order_until_answered(&http, &urls, client, &key, &body(&item, 1)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let order = answer.json().expect("an order is JSON")["id"].clone();
        answered.push((item, order.as_str().expect("an id is text").to_owned()));
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    answered
}
