//! Fixture: a node with a faulty network, a client that sends it an order, and the invariants that
//! must hold afterwards.

use std::{sync::Arc, time::Duration};

use hapax::{
    idempotency::{OnClaimed, StoredResponse, Taken},
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Settings, Tx};
use hapax_testkit::{
    events::{claim, event, response},
    postgres::Database,
    proxy::Proxy,
    wait::Patience,
};

use crate::fixture::{Fixture, INSERT, PATIENCE, plan, settings};

/// The timeouts of a node in these tests. Successful work must fit into them too, on a machine that
/// runs other tests.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A database, and a node that reaches it through a proxy.
pub(crate) struct Day {
    /// A store that bypasses the proxy.
    pub(crate) good: Fixture,
    pub(crate) proxy: Proxy,
    pub(crate) node: Postgres,
}

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A claim, a statement, an event, and the response.
    Handler,
    /// The same, with the claim pipelined with the first statement.
    Pipelined,
    /// The same, with an optimistic claim. A run that commits nothing is followed by a regular claim.
    Optimistic,
    /// A write plan, sent at once.
    PlannedRequest,
}

/// All of them.
pub(crate) const REQUEST_KINDS: [RequestKind; 4] = [
    RequestKind::Handler,
    RequestKind::Pipelined,
    RequestKind::Optimistic,
    RequestKind::PlannedRequest,
];

impl Day {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let database = Arc::new(Database::fresh().await);
        let good = Fixture::on(Arc::clone(&database), |_| {}).await;
        let proxy = Proxy::to_postgres(database.address());
        let mut settings = hasty(&proxy.url(&database.url()));
        set(&mut settings);
        let node = Postgres::open(settings)
            .await
            .expect("the node does not open");
        Self { good, proxy, node }
    }

    /// Requires the invariants of a key whose request had the result `told`, and retries until the
    /// request returns its response.
    pub(crate) async fn settle(
        &self,
        way: RequestKind,
        key: &str,
        told: Result<StoredResponse, StoreError>,
    ) {
        self.good.idle().await;
        let effects = self.effects(key).await;
        match &told {
            Ok(told) => {
                assert_eq!(*told, response(key), "{key}");
                assert_eq!(effects, (1, 1, 1), "{key}: the request was acknowledged");
            }
            // The result is unknown, so both outcomes are allowed.
            Err(StoreError::Unavailable { .. }) => {
                assert!(
                    [(0, 0, 0), (1, 1, 1)].contains(&effects),
                    "{key}: {effects:?}"
                );
            }
            Err(error) => assert_eq!(effects, (0, 0, 0), "{key}: {error:?}"),
        }
        assert_eq!(ask(&self.node, way, key).await, response(key), "{key}");
        assert_eq!(self.effects(key).await, (1, 1, 1), "{key}: after a retry");
        self.good.idle().await;
    }

    /// How many notes, events and responses a key has.
    pub(crate) async fn effects(&self, key: &str) -> (i64, i64, i64) {
        const EFFECTS: &str = "SELECT (SELECT count(*) FROM note WHERE text = $1),
            (SELECT count(*) FROM hapax.outbox_event WHERE aggregate_id = $1),
            (SELECT count(*) FROM hapax.idempotency_key WHERE key = $1)";
        let row = self.good.plain.query_one(EFFECTS, &[&key]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }
}

/// Settings of a node with short timeouts.
pub(crate) fn hasty(url: &str) -> Settings {
    let mut settings = settings(url);
    settings.statement_max = SHORT;
    settings.connect_max = SHORT;
    settings.wait = SHORT;
    settings
}

/// Sends an order once; if its key has a stored response, that is replayed.
pub(crate) async fn order(
    node: &Postgres,
    way: RequestKind,
    key: &str,
) -> Result<StoredResponse, StoreError> {
    let known = match way {
        RequestKind::Handler => match node.claim(claim(key)).await? {
            ClaimOutcome::Open(tx) => return handle(tx, key).await,
            ClaimOutcome::Taken(known) => known,
        },
        RequestKind::Pipelined => match node
            .claim_pipelined(claim(key), OnClaimed::nothing())
            .await?
        {
            ClaimOutcome::Open(tx) => return handle(tx, key).await,
            ClaimOutcome::Taken(known) => known,
        },
        RequestKind::Optimistic => return optimistic(node, key).await,
        RequestKind::PlannedRequest => match node.execute_plan(plan(key)).await? {
            ClaimOutcome::Open(_) => return Ok(response(key)),
            ClaimOutcome::Taken(known) => known,
        },
    };
    replayed(known)
}

/// Sends an order as the layer does with an optimistic claim.
async fn optimistic(node: &Postgres, key: &str) -> Result<StoredResponse, StoreError> {
    let opened = node.claim_optimistic(claim(key)).await?;
    let mut tx = opened.expect("the store has optimistic claims");
    if tx.execute(INSERT, &[&key]).await.is_ok() {
        tx.emit(event(key))?;
        match tx.complete(&response(key), Effect::Keep).await {
            Ok(_) => return Ok(response(key)),
            // It may have been committed, or may still be.
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            Err(_) => {}
        }
    } else {
        tx.rollback().await;
    }
    match node.claim(claim(key)).await? {
        ClaimOutcome::Open(tx) => handle(tx, key).await,
        ClaimOutcome::Taken(known) => replayed(known),
    }
}

fn replayed(known: Taken) -> Result<StoredResponse, StoreError> {
    match known {
        Taken::Replay { response, .. } => Ok(response),
        Taken::InProgress => Err(StoreError::unavailable("in progress")),
        other => panic!("the key is {other:?}"),
    }
}

/// The handler of an order.
pub(crate) async fn handle(mut tx: Tx, key: &str) -> Result<StoredResponse, StoreError> {
    if let Err(error) = tx.execute(INSERT, &[&key]).await {
        let known = tx.taken();
        tx.rollback().await;
        return known.map_or(Err(error), replayed);
    }
    tx.emit(event(key))?;
    let response = response(key);
    tx.complete(&response, Effect::Keep).await?;
    Ok(response)
}

/// Sends an order until it gets a response, as a client does that retries.
pub(crate) async fn ask(node: &Postgres, way: RequestKind, key: &str) -> StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        match order(node, way, key).await {
            Ok(response) => return response,
            Err(
                StoreError::Unavailable { .. }
                | StoreError::Conflict { .. }
                | StoreError::NotClaimed
                | StoreError::TimedOut,
            ) => patience.pause().await,
            Err(error) => panic!("{key}: {error:?}"),
        }
    }
}
