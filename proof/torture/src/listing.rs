//! Listing: what the API of a shop returns after a run. The lists of each tenant are read page by
//! page, some orders are also read one by one, and the demo's receiver is read if there is one.

use std::collections::BTreeMap;

use bytes::Bytes;
use hapax_testkit::wait::Patience;
use http::Method;
use serde_json::{Value, json};

use crate::{
    clients::TENANTS,
    deployment::{Deployment, PATIENCE},
};

/// The maximum number of orders that are read one by one.
const READS: usize = 200;

/// Everything that the API of the first shop returns; the shop must be running.
pub(crate) async fn all(deployment: &Deployment) -> anyhow::Result<Value> {
    let (mut orders, mut entries, mut read) = (Vec::new(), Vec::new(), BTreeMap::new());
    for tenant in TENANTS {
        let listed = pages(deployment, tenant, "/orders?limit=200", "items").await?;
        for order in listed.iter().step_by(listed.len().div_ceil(READS).max(1)) {
            let id = order["id"].as_str().unwrap_or_default().to_owned();
            let single = get(deployment, tenant, &format!("/orders/{id}")).await?;
            read.insert(id, single);
        }
        let of_tenant = |order| json!({ "tenant": tenant, "order": order });
        orders.extend(listed.into_iter().map(of_tenant));
        entries.extend(pages(deployment, tenant, "/ledger?limit=200", "entries").await?);
    }
    let demo = demo(deployment).await?;
    Ok(json!({ "orders": orders, "ledger": entries, "read": read, "demo": demo }))
}

/// The events that the demo's receiver has so far, if the shop has the demo.
pub(crate) async fn demo(deployment: &Deployment) -> anyhow::Result<Option<Vec<Value>>> {
    if !deployment.has_demo {
        return Ok(None);
    }
    let path = "/demo/receiver?limit=10000";
    pages(deployment, TENANTS[0], path, "events")
        .await
        .map(Some)
}

/// All rows of a list.
async fn pages(
    deployment: &Deployment,
    tenant: &str,
    path: &str,
    member: &str,
) -> anyhow::Result<Vec<Value>> {
    let mut rows = Vec::new();
    let mut next = path.to_owned();
    loop {
        let mut page = get(deployment, tenant, &next).await?;
        match page[member].take() {
            Value::Array(page) => rows.extend(page),
            other => anyhow::bail!("GET {next}: expected the member {member}, got {other}"),
        }
        match &page["next"] {
            Value::String(after) => next = format!("{path}&after={after}"),
            _ => return Ok(rows),
        }
    }
}

/// A document of a shop; a shop that has just started may not have one yet.
async fn get(deployment: &Deployment, tenant: &str, path: &str) -> anyhow::Result<Value> {
    let url = format!("http://{}{path}", deployment.shop_address(0));
    let token = format!("Bearer token-{tenant}");
    let headers = [("authorization", token.as_str())];
    let patience = Patience::within(PATIENCE);
    loop {
        let sent = deployment
            .http
            .send(Method::GET, &url, &headers, Bytes::new());
        match sent.await {
            Ok(response) if response.status == 200 => return Ok(response.json()?),
            Ok(response) if response.status < 500 => {
                anyhow::bail!("GET {url}: {} {}", response.status, response.text())
            }
            _ => patience.pause().await,
        }
    }
}
