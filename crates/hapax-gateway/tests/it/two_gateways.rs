//! Two gateways on one PostgreSQL database: one truth about every key.

use hapax_gateway::listener;
use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    postgres::Database,
};
use tokio::sync::watch;

use crate::{
    stage::{check_problem, listening, on_postgres, settings},
    upstream::{Reply, Upstream, ok},
};

/// The gateways, and what stops them when it is dropped.
struct Pair {
    urls: [String; 2],
    client: HttpClient,
    _stop: watch::Sender<bool>,
    _database: Database,
}

#[tokio::test]
async fn of_many_requests_at_two_gateways_one_reaches_the_service() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{\"id\":7}"))).await;
    let pair = Pair::new(&upstream).await;
    let requests = (0..20).map(|number| pair.post(number % 2, "k"));
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(
            (answer.status, answer.text()),
            (201, "{\"id\":7}".to_owned())
        );
    }
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_is_known_to_both_gateways() {
    let upstream = Upstream::start(|_| Reply::Cut(Vec::new())).await;
    let pair = Pair::new(&upstream).await;
    let code = "CONFLICT.idempotency.outcome_unknown";
    check_problem(&pair.post(0, "k").await, 502, code);
    check_problem(&pair.post(1, "k").await, 409, code);
    check_problem(&pair.post(0, "k").await, 409, code);
    assert_eq!(upstream.ledger().len(), 1);
}

impl Pair {
    async fn new(upstream: &Upstream) -> Self {
        let database = Database::fresh().await;
        let (stop, stopping) = watch::channel(false);
        let mut urls = Vec::new();
        for seed in [1, 2] {
            let settings = settings(&[&upstream.url()]);
            let gateway = on_postgres(database.url(), seed, &settings).await;
            let (listening, url) = listening().await;
            urls.push(format!("{url}/orders"));
            tokio::spawn(listener::serve(listening, gateway, stopping.clone()));
        }
        Self {
            urls: urls.try_into().unwrap(),
            client: HttpClient::new(),
            _stop: stop,
            _database: database,
        }
    }

    async fn post(&self, gateway: usize, key: &str) -> HttpResponse {
        let key = [("idempotency-key", key)];
        let url = &self.urls[gateway];
        self.client.post(url, &key, "{}").await.unwrap()
    }
}
