//! Load of the monitoring tests: a shop and a client, both of which are scraped.
//!
//! Each round places an order, sends it again, and sends another one under its key; sends two
//! concurrent identical payments, and one with such a short timeout that its retry takes over;
//! checks out; and calls an unavailable service with the client. One of the shop's webhooks has no
//! receiver.

use std::{future::ready, net::SocketAddr, sync::OnceLock, time::Duration};

use axum::{Router, routing::get};
use hapax::telemetry;
use hapax_client::{Client, Request, Settings};
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    http::{HttpReceiver, HttpReply},
    wait::pace,
};
use http::Method;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::{net::TcpListener, task::JoinSet};

use crate::shop::{CART, JSON, ORDER, PAYMENT, SLOW, Shop, Store};

/// The time between two rounds.
const PACE: Duration = Duration::from_millis(200);

/// The running load. Dropping it stops it.
pub(super) struct Traffic {
    shop: String,
    client: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Traffic {
    pub(super) async fn start() -> Self {
        let flags = [
            "--webhook",
            "http://127.0.0.1:9/",
            "--allow-net",
            "127.0.0.0/8",
            "--webhook-schedule",
            "0s,50ms",
            "--retention",
            "3s",
        ];
        let shop = Shop::start(Store::Sqlite, &flags).await;
        let mut tasks = JoinSet::new();
        let client = export(&mut tasks).await;
        tasks.spawn(call_in_vain());
        let address = shop.address().to_owned();
        tasks.spawn(buy(shop));
        Self {
            shop: address,
            client,
            _tasks: tasks,
        }
    }

    /// The scrape jobs and their addresses.
    pub(super) fn targets(&self) -> [(&'static str, String); 2] {
        [
            ("shop", self.shop.clone()),
            ("client", self.client.to_string()),
        ]
    }
}

async fn buy(shop: Shop) {
    for round in 0_u64.. {
        let key = |what| format!("{what}-{round}");
        let (order, payment, late) = (key("order"), key("payment"), key("late"));
        shop.post("/orders", Some(&order), ORDER).await;
        shop.post("/orders", Some(&order), ORDER).await;
        let other = ORDER.replace("500", "501");
        shop.post("/orders", Some(&order), &other).await;
        let pay = || shop.post("/payments", Some(&payment), PAYMENT);
        tokio::join!(pay(), pay());
        shop.post("/checkouts", Some(&key("checkout")), CART).await;
        let headers = [
            JSON,
            ("authorization", "Bearer demo-alice"),
            ("idempotency-key", late.as_str()),
            ("x-request-timeout", "100"),
        ];
        shop.send(Method::POST, "/payments", &headers, SLOW).await;
        shop.send(Method::POST, "/payments", &headers, SLOW).await;
        pace(PACE).await;
    }
}

/// Calls an unavailable service with the retrying client until its budget is exhausted.
async fn call_in_vain() {
    let down = HttpReceiver::start().await;
    down.reply(HttpReply::status(503));
    let client = Client::new(Settings::new(system_clock(), seeded_random(7))).unwrap();
    loop {
        let request = Request::post(&down.url("/orders")).unwrap().json("{}");
        client.send(request).await.unwrap();
        pace(PACE).await;
    }
}

/// Exports the metrics of this process, as a service that uses the client would.
async fn export(tasks: &mut JoinSet<()>) -> SocketAddr {
    static COUNTED: OnceLock<PrometheusHandle> = OnceLock::new();
    let counted = COUNTED.get_or_init(count);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pages = Router::new().route("/metrics", get(|| ready(counted.render())));
    tasks.spawn(async move { axum::serve(listener, pages).await.unwrap() });
    address
}

fn count() -> PrometheusHandle {
    let mut exporter = PrometheusBuilder::new();
    for name in telemetry::HISTOGRAMS {
        let timed = Matcher::Full(name.to_owned());
        exporter = exporter
            .set_buckets_for_metric(timed, &telemetry::SECONDS)
            .unwrap();
    }
    let handle = exporter.install_recorder().unwrap();
    telemetry::describe();
    handle
}
