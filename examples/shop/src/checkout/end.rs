//! The end of a checkout: it records the charge with its ledger entry, and emits the final event.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    event::NewEvent,
    key::Tenant,
    saga::{LocalStep, OnEnd, Refusal, SagaRecord, State},
    sink::BoxError,
};
use serde::Serialize;

use super::{AUTHORIZE, CAPTURE, Cart, SHIP, made};
use crate::{
    database::{Rows, params, query},
    ids::Ids,
    ledger,
    providers::Made,
};

/// Records the captured payment as a charge that can be refunded.
pub(super) struct Notify(pub(super) Ids);

impl<Tx: Rows> LocalStep<Tx> for Notify {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            let (cart, captured) = captured(saga)?;
            let tenant = saga.tenant.as_ref().map_or("", Tenant::as_str);
            let key = saga.step(CAPTURE, hapax::saga::Direction::Forward);
            let row = params![
                captured.id.clone(),
                tenant.to_owned(),
                None::<String>,
                cart.amount,
                cart.currency.clone(),
                self.0.now().as_millis(),
                key.and_then(|step| step.provider_key.clone()),
            ];
            tx.execute(query::CHARGE_INSERT, row).await?;
            let entry = ledger::Entry {
                tenant,
                charge_id: &captured.id,
                kind: "charge",
                amount: cart.amount,
                source: "shop",
                excess: 0,
            };
            entry.write(tx, &self.0).await?;
            Ok(Ok(Bytes::new()))
        })
    }
}

/// Returns the cart and the capture, and fails if their amounts differ.
fn captured(saga: &SagaRecord) -> Result<(Cart, Made), BoxError> {
    let (cart, captured) = (Cart::of(saga)?, made(saga, CAPTURE)?);
    // Only an operator's decision can have recorded another amount.
    if captured.amount.is_some_and(|amount| amount != cart.amount) {
        return Err("the captured amount differs from the total of the cart".into());
    }
    Ok((cart, captured))
}

#[derive(Debug, Serialize)]
struct Completed<'a> {
    checkout_id: &'a str,
    amount: i64,
    currency: &'a str,
    charge_id: &'a str,
    shipment_id: &'a str,
}

#[derive(Debug, Serialize)]
struct Failed<'a> {
    checkout_id: &'a str,
    reason: Option<&'a str>,
    authorization_id: Option<&'a str>,
}

/// Emits `checkout.completed` or `checkout.failed`.
pub(super) struct Tell;

impl<Tx: Rows> OnEnd<Tx> for Tell {
    fn write<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
        state: State,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let event = match state {
                State::Completed => completed(saga)?,
                _ => failed(saga),
            };
            tx.emit(event.about("checkout", saga.id.clone()))?;
            Ok(())
        })
    }
}

fn completed(saga: &SagaRecord) -> Result<NewEvent, BoxError> {
    let cart = Cart::of(saga)?;
    let completed = Completed {
        checkout_id: &saga.id,
        amount: cart.amount,
        currency: &cart.currency,
        charge_id: &made(saga, CAPTURE)?.id,
        shipment_id: &made(saga, SHIP)?.id,
    };
    Ok(NewEvent::json("checkout.completed", &completed))
}

fn failed(saga: &SagaRecord) -> NewEvent {
    let authorized = made(saga, AUTHORIZE).ok();
    let reason = saga.status.reason.as_ref();
    let failed = Failed {
        checkout_id: &saga.id,
        reason: reason.map(|reason| reason.code.as_str()),
        authorization_id: authorized.as_ref().map(|made| made.id.as_str()),
    };
    NewEvent::json("checkout.failed", &failed)
}

#[cfg(test)]
mod tests {
    use hapax::{
        Timestamp,
        saga::{Direction, StepRecord, StepState},
    };

    use super::{super::tests::record, *};

    #[test]
    fn a_capture_of_another_amount_than_the_cart_costs_is_not_booked() {
        let taken = |amount: &str| {
            let saga = SagaRecord {
                input: r#"{"items":[],"card":"tok_ok","address":{"name":"","line1":"","city":"",
                    "postal_code":"","country":""},"amount":500,"currency":"EUR"}"#
                    .into(),
                steps: vec![done(format!(
                    r#"{{"id":"cap_1","kind":"capture"{amount}}}"#
                ))],
                ..record()
            };
            captured(&saga).map(|(_, made)| made.id)
        };
        for amount in [r#","amount":500"#, ""] {
            assert_eq!(taken(amount).unwrap(), "cap_1", "{amount:?}");
        }
        assert!(taken(r#","amount":499"#).is_err());
    }

    fn done(made: String) -> StepRecord {
        StepRecord {
            name: CAPTURE.to_owned(),
            direction: Direction::Forward,
            state: StepState::Done,
            provider_key: None,
            request: Bytes::new(),
            made: made.into(),
            error: None,
            attempts: 1,
            next_at: Timestamp::default(),
            began_at: Timestamp::default(),
            ended_at: None,
        }
    }
}
