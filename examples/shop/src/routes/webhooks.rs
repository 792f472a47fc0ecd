//! The route of received webhooks, each of which creates one ledger entry.
//!
//! The layer verifies the sender, and accepts the message in the transaction that writes the entry.
//! The entry belongs to the tenant of its charge. If the charge is unknown, the entry belongs to
//! the tenant that the configuration names.

use std::{collections::HashMap, sync::Arc};

use axum::{Extension, Router, body::Bytes, extract::State, routing::post};
use hapax::{inbox::Message, signature::Verifier};
use hapax_http::{DedupeKey, Query, WebhookLayer, extract::from_json, problem::Problem};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Shop;
use crate::{
    database::{Database, Rows as _, params, query},
    ledger::Entry,
    members::{self, NoQuery},
};

/// The shop's name as a consumer.
const CONSUMER: &str = "ledger";

#[derive(Debug, Deserialize)]
struct Envelope {
    r#type: String,
    data: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Reported {
    charge_id: String,
    amount: i64,
}

/// Returns the route `POST /webhooks/{source}` for the configured sources.
pub(super) fn routes<D: Database>(
    shop: &Arc<Shop<D>>,
    sources: Vec<(String, Verifier)>,
    dedupe: Vec<(String, DedupeKey)>,
) -> Router {
    let mut keys: HashMap<String, Vec<Verifier>> = HashMap::new();
    for (source, verifier) in sources {
        keys.entry(source).or_default().push(verifier);
    }
    let (clock, random) = shop.ids.sources();
    let store = shop.store.clone();
    let known = move |source: &str| keys.get(source).cloned();
    let layer = WebhookLayer::new(store, clock, random, CONSUMER, known);
    let layer = layer.traces(shop.traces.clone());
    let layer = dedupe
        .into_iter()
        .fold(layer, |layer, (kind, key)| layer.dedupe_type(kind, key));
    Router::new()
        .route("/webhooks/{source}", post(take::<D>).layer(layer))
        .with_state(Arc::clone(shop))
}

async fn take<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(message): Extension<Message>,
    Query(NoQuery {}): Query<NoQuery>,
    mut tx: hapax_http::Tx<D::Tx>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let envelope: Envelope = from_json(&body)?;
    let kind = match envelope.r#type.as_str() {
        "payment.succeeded" => "charge",
        "refund.succeeded" => "refund",
        unknown => {
            let unknown: String = unknown.chars().take(64).collect();
            let ignored = format!("ignored: type {unknown:?}");
            tx.record_result(&ignored).map_err(Problem::internal)?;
            return Ok(StatusCode::OK);
        }
    };
    let data = envelope.data.as_deref().map_or("null", RawValue::get);
    let reported: Reported = from_json(data.as_bytes())?;
    members::name("charge_id", &reported.charge_id)?;
    members::amount(reported.amount)?;
    let key = params![reported.charge_id.clone()];
    let charge = tx.select(query::CHARGE_SELECT, key).await?.pop();
    let tenant = match charge {
        Some(mut charge) => charge.text("tenant")?,
        None => shop.inbox_tenant.as_str().to_owned(),
    };
    let entry = Entry {
        tenant: &tenant,
        charge_id: &reported.charge_id,
        kind,
        amount: reported.amount,
        source: &message.source,
    };
    entry.write(&mut *tx, &shop.ids).await?;
    tx.record_result(kind).map_err(Problem::internal)?;
    Ok(StatusCode::OK)
}
