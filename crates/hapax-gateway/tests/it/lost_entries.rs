//! A gateway that has committed a key with the phase `sent`, does not know it, and has sent nothing.

use std::time::Duration;

use hapax_gateway::listener;
use hapax_runtime::config::Span;
use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    postgres::Database,
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};
use tokio::sync::watch;

use crate::{
    stage::{PATIENCE, check_problem, listening, on_postgres, settings},
    upstream::{Reply, Upstream, ok},
};

const ROWS: &str = "SELECT count(*) FROM hapax.idempotency_key";

/// A gateway whose connections to its database go through a proxy.
struct Node {
    url: String,
    client: HttpClient,
    proxy: Proxy,
    database: Database,
    _stop: watch::Sender<bool>,
}

#[tokio::test]
async fn a_request_is_sent_although_the_result_of_its_entry_is_lost() {
    for deed in [Deed::CutBefore, Deed::CutAfter] {
        let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
        let node = Node::new(&upstream).await;
        let trap = node.proxy.once(entering(), deed);
        for _ in 0..2 {
            let answer = node.post("k").await;
            assert_eq!(answer.status, 201, "{deed:?}: {answer:?}");
        }
        assert_eq!(trap.count(), 1, "{deed:?}");
        assert_eq!(upstream.ledger().len(), 1, "{deed:?}");
    }
}

#[tokio::test]
async fn a_request_that_was_not_sent_because_its_entry_has_failed_is_sent_by_its_retry() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let node = Node::new(&upstream).await;
    let trap = node.proxy.once(entering(), Deed::HoldAfter);
    let losing = async {
        trap.sprung().await;
        node.proxy.shut().await;
    };
    let (refused, ()) = tokio::join!(node.post("k"), losing);
    check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(upstream.ledger().is_empty());
    assert_eq!(node.rows().await, 1);
    node.proxy.refuse(false).await;
    // The lease is much longer than the test.
    eventually(PATIENCE, async || {
        let retry = node.post("k").await;
        if retry.status != 201 {
            check_problem(&retry, 409, "CONFLICT.idempotency.in_progress");
        }
        retry.status == 201
    })
    .await;
    assert_eq!(upstream.ledger().len(), 1);
    assert_eq!(node.rows().await, 1);
}

impl Node {
    async fn new(upstream: &Upstream) -> Self {
        let database = Database::fresh().await;
        let proxy = Proxy::to_postgres(database.address());
        let mut settings = settings(&[&upstream.url()]);
        settings.lease = Span(Duration::from_mins(5));
        let gateway = on_postgres(proxy.url(&database.url()), 1, &settings).await;
        let (listening, url) = listening().await;
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(listener::serve(listening, gateway, stopping));
        Self {
            url: format!("{url}/orders"),
            client: HttpClient::new(),
            proxy,
            database,
            _stop: stop,
        }
    }

    async fn post(&self, key: &str) -> HttpResponse {
        let key = [("idempotency-key", key)];
        self.client.post(&self.url, &key, "{}").await.unwrap()
    }

    /// The number of keys in the database.
    async fn rows(&self) -> i64 {
        let client = self.database.client().await;
        client.query_one(ROWS, &[]).await.unwrap().get(0)
    }
}

/// The statement that enters a key which has no row.
fn entering() -> Moment {
    Moment::statement(|text| {
        text.starts_with("INSERT INTO hapax.idempotency_key\n") && text.contains("'in_progress'")
    })
}
