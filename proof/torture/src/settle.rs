//! Settling: after the last fault, waits until everything is delivered, and stops the deployment.

use std::{collections::HashSet, time::Duration};

use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clients::Operation,
    deployment::{Deployment, REJECTING_TYPES},
    lines::{self, now},
    listing,
    nemesis::{IN_PROGRESS, Nemesis},
    stored_rows::{self, StoredRows},
};

/// How long clients continue after the last fault, and in a short run.
const CALM: Duration = Duration::from_secs(3);
const SHORT_CALM: Duration = Duration::from_millis(500);
/// How long nothing may happen before the wait for the remaining work ends: longer than the
/// hand-over of a partition, which takes an offer and some leases.
const STALL: Duration = Duration::from_secs(25);
/// The same after an orderly stop, which hands the partitions over.
const LAST_STALL: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_mins(2);
/// Deliveries that are to be attempted again.
const UNSETTLED: &str =
    "SELECT position FROM @delivery WHERE state NOT IN ('delivered', 'discarded', 'dead')";

/// Waits until everything has settled, and stops the deployment in an orderly way. Returns when the
/// faults were over, and how long the remaining work took from then.
///
/// If `is_short`, the wait ends as soon as every event has arrived; otherwise it also waits for late
/// duplicates.
pub(crate) async fn settle(
    nemesis: &mut Nemesis,
    is_short: bool,
) -> anyhow::Result<(u64, Duration)> {
    let deployment = &mut nemesis.deployment;
    deployment.up().await?;
    deployment.stop_receiver_faults().await?;
    for is_payment in [true, false] {
        let url = deployment.provider(is_payment, "/faults");
        let outcome = json!({ "operation": "any", "mode": "ok" }).to_string();
        let outcome = deployment.http.post(&url, &[], outcome).await;
        outcome.map_err(|error| anyhow::anyhow!("cannot configure a provider: {error}"))?;
    }
    let (quiet_from, quiet_at) = (now(), Instant::now());
    pace(if is_short { SHORT_CALM } else { CALM }).await;
    for clients in &mut deployment.clients {
        clients.signal("TERM")?;
    }
    for clients in &mut deployment.clients {
        clients.has_stopped().await?;
    }
    let drained = drain(deployment, quiet_at, is_short, STALL).await?;
    // A relay that starts after an orderly stop continues where it was, and repeats nothing.
    halt(deployment).await?;
    deployment.up().await?;
    let order = nemesis.operator.new_operation(Operation::order);
    let address = nemesis.deployment.shop_address(0);
    nemesis.operator.send("shop-0", &address, &order).await?;
    let deployment = &mut nemesis.deployment;
    drain(deployment, Instant::now(), true, LAST_STALL).await?;
    let listed = listing::all(deployment).await?;
    std::fs::write(deployment.folder.join("listed.json"), listed.to_string())?;
    halt(deployment).await?;
    Ok((quiet_from, drained))
}

/// Waits until nothing more arrives, or, in a short run, until everything has arrived. Returns the
/// time from `since` until the last arrival.
async fn drain(
    deployment: &Deployment,
    since: Instant,
    is_short: bool,
    stall: Duration,
) -> anyhow::Result<Duration> {
    let (mut seen, mut changed) = (arrived(deployment).await?, Instant::now());
    let mut last_arrival = since.elapsed();
    while since.elapsed() < DRAIN && changed.elapsed() < stall {
        if is_short && has_arrived(deployment).await? {
            break;
        }
        pace(Duration::from_millis(250)).await;
        let now = arrived(deployment).await?;
        if now != seen {
            (seen, changed) = (now, Instant::now());
            last_arrival = since.elapsed();
        }
    }
    Ok(last_arrival)
}

/// Stops shops and relays with SIGTERM.
async fn halt(deployment: &mut Deployment) -> anyhow::Result<()> {
    for program in deployment.shops.iter_mut().chain(&mut deployment.relays) {
        program.stop().await?;
    }
    Ok(())
}

/// Number of events at the receivers, and number of checkouts in progress.
async fn arrived(deployment: &Deployment) -> anyhow::Result<Vec<usize>> {
    let mut counts = Vec::new();
    for name in ["hook", "feed", "stream", "mail", "payment", "shipping"] {
        counts.push(lines::read(&deployment.folder.join(format!("{name}.jsonl")))?.len());
    }
    let open = "SELECT id FROM @saga WHERE state = 'running'";
    counts.push(StoredRows::of(deployment).read(open).await?.len());
    Ok(counts)
}

/// Whether nothing is in progress, and every event has arrived at every receiver.
async fn has_arrived(deployment: &Deployment) -> anyhow::Result<bool> {
    let stored_rows = StoredRows::of(deployment);
    for sql in IN_PROGRESS.into_iter().chain([UNSETTLED]) {
        if !stored_rows.read(sql).await?.is_empty() {
            return Ok(false);
        }
    }
    let mut events = stored_rows
        .read("SELECT event_id, type FROM @outbox_event")
        .await?;
    let emitted = ids(&events, "event_id");
    let has_effect = |line: &Value| line["effect"] == true;
    let mut arrivals = vec![arrived_ids(deployment, "hook", "id", has_effect)?];
    if let Some(server) = &deployment.server {
        arrivals.push(arrived_ids(deployment, "feed", "id", has_effect)?);
        arrivals.push(arrived_ids(deployment, "stream", "id", has_effect)?);
        arrivals.push(ids(&stored_rows::remote(server).await?, "event_id"));
        let is_judged = |line: &Value| line["what"] == "accepted" || line["what"] == "rejected";
        let judged = arrived_ids(deployment, "feed", "id", is_judged)?;
        events.retain(|it| REJECTING_TYPES.iter().any(|kind| it["type"] == *kind));
        if !ids(&events, "event_id").is_subset(&judged) {
            return Ok(false);
        }
    }
    let demo = listing::demo(deployment).await?;
    arrivals.extend(demo.map(|seen| ids(&seen, "event_id")));
    let users = stored_rows.read("SELECT email FROM shop_user").await?;
    let is_taken = |line: &Value| line["mode"] != "temporary failure";
    let mailed = arrived_ids(deployment, "mail", "to", is_taken)?;
    Ok(mailed.len() >= users.len() && arrivals.iter().all(|it| emitted.is_subset(it)))
}

/// This member of the lines in a receiver's ledger that satisfy a condition.
fn arrived_ids(
    deployment: &Deployment,
    name: &str,
    member: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<HashSet<String>> {
    let mut ledger = lines::read(&deployment.folder.join(format!("{name}.jsonl")))?;
    ledger.retain(is_wanted);
    Ok(ids(&ledger, member))
}

fn ids(rows: &[Value], member: &str) -> HashSet<String> {
    rows.iter().map(|row| row[member].to_string()).collect()
}
