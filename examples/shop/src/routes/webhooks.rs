//! The route of received webhooks, each of which is recorded in the ledger.
//!
//! The layer verifies the sender, and accepts the message in the transaction that writes the entry.
//! A payment is an entry for each message. A refund is an entry once, however many messages report
//! it, and also if the shop has requested it. The entry belongs to the tenant of its charge. If the
//! charge is unknown, the entry belongs to the tenant that the configuration names.

use std::{collections::HashMap, sync::Arc};

use axum::{Extension, Router, body::Bytes, extract::State, routing::post};
use hapax::{inbox::Message, signature::Verifier};
use hapax_http::{DedupeKey, Query, WebhookLayer, extract::from_json, problem::Problem};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Shop;
use crate::{
    database::Database,
    ledger::Entry,
    members::{self, NoQuery},
    refunds::{Charge, Recorded, Report},
};

/// The shop's name as a consumer.
const CONSUMER: &str = "ledger";

#[derive(Debug, Deserialize)]
struct Envelope {
    r#type: String,
    data: Option<Box<RawValue>>,
}

/// A charge that a payment provider has made.
#[derive(Debug, Deserialize)]
struct Charged {
    charge_id: String,
    amount: i64,
}

/// A refund that a payment provider has made.
#[derive(Debug, Deserialize)]
struct Refunded {
    /// The provider's id of the refund, or the shop's.
    refund_id: String,
    charge_id: String,
    amount: i64,
    /// The key of the call to the provider that requested the refund.
    idempotency_key: Option<String>,
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
    let layer = layer.traces(shop.traces.clone()).log(shop.requests);
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
    let data = envelope.data.as_deref().map_or("null", RawValue::get);
    let result = match envelope.r#type.as_str() {
        "payment.succeeded" => {
            let charged: Charged = from_json(data.as_bytes())?;
            charged.enter(&mut *tx, &shop, &message.source).await?;
            "charge".to_owned()
        }
        "refund.succeeded" => {
            let refunded: Refunded = from_json(data.as_bytes())?;
            let recorded = refunded.record(&mut *tx, &shop, &message.source).await?;
            let result = if recorded.is_new {
                "refund"
            } else {
                "refund: recorded before"
            };
            result.to_owned()
        }
        unknown => {
            let unknown: String = unknown.chars().take(64).collect();
            format!("ignored: type {unknown:?}")
        }
    };
    tx.record_result(&result).map_err(Problem::internal)?;
    Ok(StatusCode::OK)
}

impl Charged {
    async fn enter<D: Database>(
        &self,
        tx: &mut D::Tx,
        shop: &Shop<D>,
        source: &str,
    ) -> Result<(), Problem> {
        members::name("charge_id", &self.charge_id)?;
        members::amount(self.amount)?;
        let charge = Charge::lock(tx, &self.charge_id).await?;
        let unclaimed = shop.inbox_tenant.as_str();
        let entry = Entry {
            tenant: charge.as_ref().map_or(unclaimed, |it| it.tenant.as_str()),
            charge_id: &self.charge_id,
            kind: "charge",
            amount: self.amount,
            source,
            excess: 0,
        };
        Ok(entry.write(tx, &shop.ids).await?)
    }
}

impl Refunded {
    async fn record<D: Database>(
        &self,
        tx: &mut D::Tx,
        shop: &Shop<D>,
        source: &str,
    ) -> Result<Recorded, Problem> {
        members::name("refund_id", &self.refund_id)?;
        members::name("charge_id", &self.charge_id)?;
        members::amount(self.amount)?;
        if let Some(key) = &self.idempotency_key {
            members::name("idempotency_key", key)?;
        }
        let report = Report {
            charge_id: &self.charge_id,
            amount: self.amount,
            refund_id: &self.refund_id,
            provider_key: self.idempotency_key.as_deref(),
            source,
        };
        report.record(tx, &shop.ids, &shop.inbox_tenant).await
    }
}
