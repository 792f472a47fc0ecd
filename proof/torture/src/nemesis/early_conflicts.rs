//! Early conflicts: another payload is sent under a key whose first request certainly runs.
//!
//! The operator holds a request at a known point, waits until it has its key, and sends the other payload to every
//! shop. A payment is held between two phases: its provider is stopped. On a server, a change of an order is also held
//! in its transaction: another session has locked the row. That request goes to a shop that claims first, and the
//! other payload also to a second shop of this kind.

use std::{pin::pin, time::Duration};

use anyhow::{Context as _, bail};
use futures_util::future::{try_join, try_join_all};
use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    Nemesis,
    injection::{LOOK, REACH},
    operator::Operator,
};
use crate::{
    clients::{Operation, Witness},
    conflict::{Conflict, Exchange, Held},
    deployment::{self, Deployment, Program},
    lines::now,
    stored_rows::StoredRows,
};

/// How long a request is held at most. It is shorter than the time limits of a call to a provider and of a statement.
const HOLD: Duration = Duration::from_millis(1_500);
/// The name of the payment provider.
const PROVIDER: &str = "payment";
/// Sessions that wait for this one.
const BLOCKED: &str = "SELECT count(*) FROM pg_locks
    WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))";

/// A shop that gets requests.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    address: String,
    /// Whether it claims the key of this operation when its handler has ended.
    is_optimistic: bool,
}

/// A request to hold, and the shops that get the other payload.
#[derive(Debug)]
struct Plan<'a> {
    held: Held,
    operation: &'a Operation,
    /// Index of the shop that gets the first request.
    first: usize,
    nodes: &'a [Node],
}

/// Causes the conflicts; the first payment goes to the shop `first`. Returns whether every shop that claims first
/// refused the other payload while the first request ran.
pub(super) async fn run(nemesis: &mut Nemesis, first: usize) -> anyhow::Result<bool> {
    nemesis.deployment.up().await?;
    let took_effect = between_phases(nemesis, first).await?;
    if nemesis.deployment.server.is_none() {
        return Ok(took_effect);
    }
    Ok(in_transaction(nemesis).await? && took_effect)
}

/// Holds a payment whose provider is stopped.
async fn between_phases(nemesis: &mut Nemesis, first: usize) -> anyhow::Result<bool> {
    let payment = nemesis.operator.new_operation(Operation::payment);
    let deployment = &nemesis.deployment;
    let stored_rows = StoredRows::of(deployment);
    let row = format!(
        "SELECT state FROM @idempotency_key WHERE key = '{}' AND state = 'in_progress'",
        payment.key
    );
    let provider = deployment.remotes.iter().find(|it| it.name == PROVIDER);
    let provider = provider.context("there is no payment provider")?;
    let plan = Plan {
        held: Held::Phase,
        operation: &payment,
        first,
        // A phased operation claims its key first, in every shop.
        nodes: &shops(deployment, |_| false),
    };
    provider.signal("STOP")?;
    let has_key = async || anyhow::Ok(!stored_rows.read(&row).await?.is_empty());
    let sent = plan.send(has_key, async || provider.signal("CONT")).await;
    // After an error the provider is still stopped.
    provider.signal("CONT")?;
    plan.end(&nemesis.operator, sent?).await
}

/// Holds a change of an order whose row is locked, in a shop that claims first.
async fn in_transaction(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    let port = hapax_testkit::port::free_port();
    let mut guest = guest(&nemesis.deployment, port);
    guest.start()?;
    let ended = deployment::is_ready(&nemesis.deployment.http, &mut guest, port).await?;
    if let Some(status) = ended {
        bail!("{} ended before it was ready: {status}", guest.name);
    }
    // The first shop makes optimistic claims.
    let mut nodes = shops(&nemesis.deployment, |at| at == 0);
    nodes.push(Node {
        name: guest.name.clone(),
        address: format!("127.0.0.1:{port}"),
        is_optimistic: false,
    });
    let took_effect = with_locked_row(nemesis, &nodes).await;
    guest.stop().await?;
    took_effect
}

async fn with_locked_row(nemesis: &mut Nemesis, nodes: &[Node]) -> anyhow::Result<bool> {
    // The last shop of the deployment, before the guest.
    let first = nodes.len() - 2;
    let order = nemesis.operator.new_operation(Operation::order);
    let Node { name, address, .. } = &nodes[first];
    let Some(id) = nemesis.operator.send(name, address, &order).await? else {
        return Ok(false);
    };
    let made = json!({ "id": id, "note": order.body["note"] });
    let change = nemesis.operator.new_operation(|_, number| {
        // The order has its first version.
        Operation::update(&order.tenant, number, &made, "\"1\"")
    });
    let change = change.context("the order has an id")?;
    let server = nemesis.deployment.server.as_ref();
    let database = server.and_then(|it| it.database());
    let client = database.context("there is a server")?.client().await;
    client.batch_execute("BEGIN").await?;
    let lock = "SELECT id FROM shop_order WHERE id = $1 FOR UPDATE";
    client.query(lock, &[&id]).await?;
    let plan = Plan {
        held: Held::Transaction,
        operation: &change,
        first,
        nodes,
    };
    let has_key = async || {
        let blocked = client.query_one(BLOCKED, &[]).await?;
        anyhow::Ok(blocked.get::<_, i64>(0) > 0)
    };
    let release = async || {
        client.batch_execute("ROLLBACK").await?;
        anyhow::Ok(())
    };
    let sent = plan.send(has_key, release).await?;
    plan.end(&nemesis.operator, sent).await
}

impl Plan<'_> {
    /// Sends the first request and, when it has its key, the other payload to every shop. The first request can
    /// continue when each of them has a response, and after some time in any case. Returns `None` if it did not get
    /// its key in time.
    async fn send(
        &self,
        has_key: impl AsyncFn() -> anyhow::Result<bool>,
        release: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Conflict>> {
        let altered = self.operation.altered();
        let altered = altered.context("the operation has an amount")?;
        let first = request(&self.nodes[self.first], self.operation);
        let others = async {
            if !until(has_key).await? {
                release().await?;
                return anyhow::Ok(None);
            }
            let claimed_at = now();
            let sent = self.nodes.iter().map(|node| request(node, &altered));
            let mut sent = pin!(try_join_all(sent));
            let early = timeout(HOLD, sent.as_mut()).await;
            let released_at = now();
            release().await?;
            let others = match early {
                Ok(others) => others?,
                Err(_) => sent.await?,
            };
            Ok(Some((claimed_at, released_at, others)))
        };
        let (first, others) = try_join(first, others).await?;
        Ok(others.map(|(claimed_at, released_at, others)| Conflict {
            held: self.held,
            operation: self.operation.clone(),
            claimed_at,
            released_at,
            first,
            others,
            after: Vec::new(),
        }))
    }

    /// Repeats the first request at every shop, and records the conflict. Returns whether it was early.
    async fn end(&self, operator: &Operator, sent: Option<Conflict>) -> anyhow::Result<bool> {
        let mut after = Vec::new();
        for node in self.nodes {
            let began = now();
            let sent = operator.request(&node.name, &node.address, self.operation);
            let response = sent.await?;
            after.push(node.exchange(began, response));
        }
        let Some(mut conflict) = sent else {
            return Ok(false);
        };
        conflict.after = after;
        operator.record(&conflict)?;
        Ok(conflict.is_early())
    }
}

impl Node {
    fn exchange(&self, began: u64, response: Value) -> Exchange {
        Exchange {
            node: self.name.clone(),
            is_optimistic: self.is_optimistic,
            began,
            ended: now(),
            response,
        }
    }
}

/// Sends a request once.
async fn request(node: &Node, operation: &Operation) -> anyhow::Result<Exchange> {
    let began = now();
    let response = Witness::of(&node.address).exchange(operation).await?;
    Ok(node.exchange(began, response))
}

/// Waits for a limited time until a condition holds; whether it does.
async fn until(holds: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<bool> {
    let end = Instant::now() + REACH;
    while Instant::now() < end {
        if holds().await? {
            return Ok(true);
        }
        pace(LOOK).await;
    }
    Ok(false)
}

/// The shops of the deployment, and which of them make optimistic claims.
fn shops(deployment: &Deployment, is_optimistic: impl Fn(usize) -> bool) -> Vec<Node> {
    let shops = deployment.shops.iter().enumerate();
    let node = |(at, shop): (usize, &Program)| Node {
        name: shop.name.clone(),
        address: deployment.shop_address(at),
        is_optimistic: is_optimistic(at),
    };
    shops.map(node).collect()
}

/// A shop without a relay at this port, which claims as the last shop does.
fn guest(deployment: &Deployment, port: u16) -> Program {
    let listen = |argument: &str| {
        if argument.starts_with("--listen=") {
            format!("--listen=127.0.0.1:{port}")
        } else {
            argument.to_owned()
        }
    };
    let last = deployment.shops.len() - 1;
    let mut guest = deployment.shops[last].another("conflict-guest", listen);
    guest.add_argument("--no-relay".to_owned());
    guest
}
