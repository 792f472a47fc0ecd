//! The route of refunds, whose sum never exceeds the charge.
//!
//! The first phase locks the charge, compares the sum of its refunds with it, and writes a pending
//! refund, so two concurrent refunds, on any instances, cannot both take the last of the charge.
//! Then the provider refunds under its key. The last phase records the refund as made, together with
//! the response. If the provider refuses, the pending refund is deleted in the same commit as the
//! response.
//!
//! A webhook may report the refund before its response arrives, and records it then. This request
//! finds that out in its last phase, or, if it was interrupted, when it is resumed.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, failpoint::Failpoints, key::Tenant, store::StoreError};
use hapax_http::{Disposition, Json, Phased, Query, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Shop, provided};
use crate::{
    database::{Database, Row, Rows, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::{REFUND_DIFFERS, REFUND_EXCEEDS},
    providers::{
        Found, KEY_REUSED, Label, Made, Operation, Outcome, Payments, Settled, Wanted, settle,
    },
    refunds::{Charge, Report},
};

/// The phase that reserves the amount.
const RESERVED: &str = "reserved";
/// The phase that returns the amount after the provider did nothing; a retry reserves it again.
const RETURNED: &str = "returned";

/// The body of a refund.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    charge_id: String,
    amount: i64,
}

#[derive(Debug, Serialize)]
struct Refund {
    id: String,
    charge_id: String,
    amount: i64,
    currency: String,
    created_at: String,
    /// Whether it is recorded as made.
    #[serde(skip)]
    is_made: bool,
}

/// A refund to request from the provider under a key.
struct Refunding<'a> {
    provider: &'a Payments,
    label: Label<'a>,
    refund: &'a Refund,
    is_resumed: bool,
    failpoints: &'a Failpoints,
}

/// `POST /refunds`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut phased: Phased<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::name("charge_id", &stated.charge_id)?;
    members::amount(stated.amount)?;
    let provider = provided(shop.providers.payment.as_ref(), &phased)?;
    let key = phased.provider_key("refund");
    let refund = reserved(&shop, &mut phased, &tenant, &stated, &key).await?;
    if refund.is_made {
        return Ok((StatusCode::CREATED, Json(refund)).into_response());
    }
    match call(&shop, &phased, provider, &key, &refund).await {
        Settled::Done(made) => {
            let mut tx = phased.last().await?;
            let refund = refund.record(&mut *tx, &shop, &tenant, &made.id, &key);
            let refund = refund.await?;
            drop(tx);
            Ok((StatusCode::CREATED, Json(refund)).into_response())
        }
        Settled::Refused(refusal) if refusal.code != KEY_REUSED => {
            let mut tx = phased.last().await?;
            refund.give_back(&mut *tx, &tenant).await?;
            drop(tx);
            // The refusal is stored like others, but here the writes of the phase are kept.
            let kept = Extension(Disposition::WithEffect);
            Ok((kept, super::refused(refusal)).into_response())
        }
        Settled::Refused(refusal) => Err(super::refused(refusal)),
        Settled::Nothing(error) => {
            let back = async |tx: &mut D::Tx| refund.give_back(tx, &tenant).await;
            phased.phase(RETURNED, back).await?;
            // Only after the phase: if it fails, the reservation and the key must stay.
            phased.nothing_happened();
            Err(super::failed(error))
        }
        Settled::Unknown(error) => Err(super::unknown(error)),
    }
}

/// Returns the refund, which an earlier attempt or this one has written.
async fn reserved<D: Database>(
    shop: &Shop<D>,
    phased: &mut Phased<D::Tx>,
    tenant: &Tenant,
    stated: &Stated,
    key: &str,
) -> Result<Refund, Problem> {
    if phased.recovery_point().as_deref() == Some(RESERVED) {
        return Refund::find(&shop.store, tenant, key).await;
    }
    let reserve = async |tx: &mut D::Tx| reserve(tx, shop, tenant, stated, key).await;
    let refund = phased.phase(RESERVED, reserve).await?;
    shop.failpoints.hit("refunds.reserved");
    Ok(refund)
}

/// Refunds at the provider once, even if responses are lost.
async fn call<D: Database>(
    shop: &Shop<D>,
    phased: &Phased<D::Tx>,
    provider: &Payments,
    key: &str,
    refund: &Refund,
) -> Settled<Made> {
    let headers = phased.context();
    let refunding = Refunding {
        provider,
        label: Label { key, headers },
        refund,
        is_resumed: phased.is_resumed(),
        failpoints: &shop.failpoints,
    };
    settle(&shop.ids.sources().1, &refunding).await
}

/// Reserves the amount and writes a pending refund.
async fn reserve<D: Database>(
    tx: &mut D::Tx,
    shop: &Shop<D>,
    tenant: &Tenant,
    stated: &Stated,
    key: &str,
) -> Result<Refund, Problem> {
    let currency = take(tx, tenant, stated).await?;
    let now = shop.ids.now();
    let refund = Refund {
        id: shop.ids.mint("rf"),
        charge_id: stated.charge_id.clone(),
        amount: stated.amount,
        currency,
        created_at: written(now),
        is_made: false,
    };
    let row = params![
        refund.id.clone(),
        tenant.as_str().to_owned(),
        refund.charge_id.clone(),
        refund.amount,
        now.as_millis(),
        key.to_owned(),
    ];
    tx.execute(query::REFUND_INSERT, row).await?;
    Ok(refund)
}

/// Locks the charge, compares the amount with what is left of it, and returns its currency.
async fn take(tx: &mut impl Rows, tenant: &Tenant, stated: &Stated) -> Result<String, Problem> {
    let charge = Charge::lock(tx, &stated.charge_id).await?;
    let charge = charge.filter(|charge| charge.tenant == tenant.as_str());
    let charge = charge.ok_or_else(|| {
        Problem::not_found()
            .member("charge_id")
            .detail("no charge has this id")
    })?;
    let left = charge.left(tx).await?;
    if stated.amount > left {
        let detail = format!("{left} of the charge can still be refunded");
        return Err(Problem::new(REFUND_EXCEEDS).member("amount").detail(detail));
    }
    Ok(charge.currency)
}

impl Operation<Made> for Refunding<'_> {
    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    async fn call(&self) -> Outcome<Made> {
        self.failpoints.hit("refunds.call.before");
        let refund = self.refund;
        let asked = self
            .provider
            .refund(self.label, &refund.charge_id, refund.amount);
        let outcome = asked.await;
        self.failpoints.hit("refunds.call.after");
        outcome
    }

    async fn look_up(&self) -> Found<Made> {
        let wanted = Wanted::refund(self.refund.amount);
        self.provider.look_up(self.label, wanted).await
    }
}

impl Refund {
    /// Reads the refund that an earlier attempt has written.
    async fn find<D: Database>(store: &D, tenant: &Tenant, key: &str) -> Result<Self, Problem> {
        let row = params![key.to_owned(), tenant.as_str().to_owned()];
        let mut found = store.select(query::REFUND_FIND, row).await?;
        let row = found
            .pop()
            .ok_or_else(|| Problem::internal("the pending refund is missing"))?;
        Ok(Self::read(row)?)
    }

    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text("id")?,
            charge_id: row.text("charge_id")?,
            amount: row.integer("amount")?,
            currency: row.text("currency")?,
            created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
            is_made: row.text("state")? == "done",
        })
    }

    /// Records that the provider has made the refund.
    async fn record<D: Database>(
        self,
        tx: &mut D::Tx,
        shop: &Shop<D>,
        tenant: &Tenant,
        provider_ref: &str,
        key: &str,
    ) -> Result<Self, Problem> {
        let report = Report {
            charge_id: &self.charge_id,
            amount: self.amount,
            refund_id: provider_ref,
            provider_key: Some(key),
            source: "shop",
        };
        let recorded = report.record(tx, &shop.ids, tenant).await;
        let recorded = recorded.map_err(|problem| {
            if problem.code() == REFUND_DIFFERS {
                super::unknown("a webhook has reported this refund with another amount".into())
            } else {
                problem
            }
        })?;
        Ok(Self {
            id: recorded.id,
            created_at: written(recorded.created_at),
            is_made: true,
            ..self
        })
    }

    /// Deletes the pending refund, which returns its amount to the charge.
    ///
    /// # Errors
    /// Fails if a webhook has recorded the refund as made; then the next attempt responds with it.
    async fn give_back(&self, tx: &mut impl Rows, tenant: &Tenant) -> Result<(), Problem> {
        Charge::lock(tx, &self.charge_id).await?;
        let row = params![self.id.clone(), tenant.as_str().to_owned()];
        if tx.execute(query::REFUND_DROP, row).await? == 0 {
            return Err(super::unknown("a webhook has reported this refund".into()));
        }
        Ok(())
    }
}
