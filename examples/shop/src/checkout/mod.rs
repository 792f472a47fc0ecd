//! The checkout saga: reserve, authorize, ship, capture, notify.
//!
//! Stock is in the shop's database; payments and shipments are remote steps. If the card is
//! refused, the saga releases the stock. If the shipment is refused, it also voids the
//! authorization. If the outcome of a call is unknown, the saga asks the provider until it is
//! known. The capture is the pivot: after it, the saga only goes forward. Every checkout ends
//! shipped and captured, or with nothing shipped and the authorization voided, or it waits for an
//! operator's decision.

mod cart;
mod stock;
mod remote;
mod payment;
mod shipment;
mod end;
mod view;

use std::time::Duration;

use hapax::{
    event::Headers,
    key::Tenant,
    saga::{Definition, Kind, NewSaga, RetryPolicy, SagaRecord, Step},
    sink::BoxError,
};

use self::remote::Sent;
pub(crate) use self::{
    cart::{Cart, Stated},
    stock::OUT_OF_STOCK,
    view::{CLOSED, View, public_reason},
};
use crate::{
    database::Rows,
    ids::Ids,
    providers::{Made, Payments, Shipping},
};

/// The saga's name and version.
pub(crate) const CHECKOUT: &str = "checkout";
const VERSION: u32 = 1;
/// The names of the steps, which appear in events and views.
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const AUTHORIZE: &str = "authorize";
pub(crate) const SHIP: &str = "ship";
pub(crate) const CAPTURE: &str = "capture";
pub(crate) const NOTIFY: &str = "notify";
/// All steps, in order.
pub(crate) const STEPS: [&str; 5] = [RESERVE, AUTHORIZE, SHIP, CAPTURE, NOTIFY];

/// The retries of a remote step: calls for 6 s, then a settle time of 6 s in which an abandoned
/// call may still arrive. After that, a call that the provider does not know has not happened.
const PATIENCE: RetryPolicy = RetryPolicy {
    call: Duration::from_secs(4),
    pause: Duration::from_millis(200),
    pause_max: Duration::from_secs(2),
    window: Duration::from_secs(6),
    settle_time: Duration::from_secs(6),
};
/// How long a checkout may take before it waits for an operator's decision.
const DEADLINE: Duration = Duration::from_mins(2);

/// Defines the steps of a checkout.
pub(crate) fn definition<Tx: Rows>(
    payments: &Payments,
    shipping: &Shipping,
    ids: &Ids,
) -> Definition<Tx> {
    let authorize = Sent(payment::Authorize(payments.clone()));
    let void = Sent(payment::Void(payments.clone()));
    let capture = Sent(payment::Capture(payments.clone()));
    let refund = Sent(payment::Refund(payments.clone()));
    let ship = Sent(shipment::Ship(shipping.clone()));
    let cancel = Sent(shipment::Cancel(shipping.clone()));
    Definition::new(CHECKOUT, VERSION)
        .deadline(DEADLINE)
        .step(Step::local(RESERVE, stock::Reserve).compensate_local(stock::Release))
        .step(
            Step::remote(AUTHORIZE, authorize)
                .compensate_remote(void)
                .retry_policy(PATIENCE),
        )
        .step(
            Step::remote(SHIP, ship)
                .compensate_remote(cancel)
                .retry_policy(PATIENCE),
        )
        .step(
            Step::remote(CAPTURE, capture)
                .compensate_remote(refund)
                .pivot()
                .retry_policy(PATIENCE),
        )
        .step(Step::local(NOTIFY, end::Notify(ids.clone())))
        .on_end(end::Tell)
}

/// Builds the saga of a new checkout.
pub(crate) fn begin(id: &str, tenant: Tenant, cart: &Cart) -> Result<NewSaga, BoxError> {
    Ok(NewSaga {
        id: id.to_owned(),
        kind: Kind {
            name: CHECKOUT.to_owned(),
            version: VERSION,
        },
        tenant: Some(tenant),
        input: serde_json::to_vec(cart)?.into(),
        headers: Headers::new(),
        deadline: DEADLINE,
    })
}

/// Returns the object that a remote step created.
fn made(saga: &SagaRecord, step: &str) -> Result<Made, BoxError> {
    let made = saga
        .made(step)
        .ok_or_else(|| format!("the step {step} is not done"))?;
    Ok(serde_json::from_slice(made)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use hapax::{
        Timestamp,
        saga::{SagaStatus, State},
    };

    use super::*;

    /// Returns a new checkout without a cart.
    pub(crate) fn record() -> SagaRecord {
        SagaRecord {
            id: "chk_1".to_owned(),
            kind: Kind {
                name: CHECKOUT.to_owned(),
                version: VERSION,
            },
            tenant: None,
            input: Vec::new().into(),
            headers: Headers::new(),
            status: SagaStatus {
                state: State::Running,
                compensating: false,
                reason: None,
                deadline_at: Timestamp::default(),
            },
            epoch: 1,
            wake_at: None,
            waiting_for: None,
            created_at: Timestamp::default(),
            ended_at: None,
            steps: Vec::new(),
            signals: Vec::new(),
        }
    }
}
