//! The payment steps of a checkout: authorize, void, capture, refund.

use hapax::{
    saga::{Found, Outcome, SagaRecord},
    sink::BoxError,
};
use serde::{Deserialize, Serialize};

use super::{AUTHORIZE, CAPTURE, Cart, made, remote::ProviderStep};
use crate::providers::{Label, Made, Order, Payments, Wanted};

/// Authorizes the total on the card.
pub(super) struct Authorize(pub(super) Payments);

#[derive(Deserialize, Serialize)]
pub(super) struct AuthorizationRequest {
    card: String,
    amount: i64,
    currency: String,
}

impl AuthorizationRequest {
    fn order(&self) -> Order<'_> {
        Order {
            card: &self.card,
            amount: self.amount,
            currency: &self.currency,
        }
    }
}

impl ProviderStep for Authorize {
    type Request = AuthorizationRequest;

    fn asked(&self, saga: &SagaRecord) -> Result<AuthorizationRequest, BoxError> {
        let cart = Cart::of(saga)?;
        Ok(AuthorizationRequest {
            card: cart.card,
            amount: cart.amount,
            currency: cart.currency,
        })
    }

    async fn ask(&self, label: Label<'_>, asked: &AuthorizationRequest) -> Outcome<Made> {
        self.0.authorize(label, asked.order()).await
    }

    async fn find(&self, label: Label<'_>, asked: &AuthorizationRequest) -> Found<Made> {
        let wanted = Wanted::authorization(asked.order());
        self.0.look_up(label, wanted).await
    }
}

/// An authorization, and the total of the cart.
#[derive(Deserialize, Serialize)]
pub(super) struct Authorization {
    authorization: String,
    amount: i64,
}

impl Authorization {
    fn of(saga: &SagaRecord) -> Result<Self, BoxError> {
        Ok(Self {
            authorization: made(saga, AUTHORIZE)?.id,
            amount: Cart::of(saga)?.amount,
        })
    }
}

/// Voids the authorization.
pub(super) struct Void(pub(super) Payments);

impl ProviderStep for Void {
    type Request = Authorization;
    const NOTHING_LEFT: Option<&'static str> = Some("voided");

    fn asked(&self, saga: &SagaRecord) -> Result<Authorization, BoxError> {
        Authorization::of(saga)
    }

    async fn ask(&self, label: Label<'_>, held: &Authorization) -> Outcome<Made> {
        let voided = self.0.void(label, &held.authorization, held.amount);
        voided.await
    }

    async fn find(&self, label: Label<'_>, held: &Authorization) -> Found<Made> {
        self.0.look_up(label, Wanted::void(held.amount)).await
    }
}

/// Captures the authorized amount.
pub(super) struct Capture(pub(super) Payments);

impl ProviderStep for Capture {
    type Request = Authorization;

    fn asked(&self, saga: &SagaRecord) -> Result<Authorization, BoxError> {
        Authorization::of(saga)
    }

    async fn ask(&self, label: Label<'_>, held: &Authorization) -> Outcome<Made> {
        let captured = self.0.capture(label, &held.authorization, held.amount);
        captured.await
    }

    async fn find(&self, label: Label<'_>, held: &Authorization) -> Found<Made> {
        self.0.look_up(label, Wanted::capture(held.amount)).await
    }
}

/// Refunds the capture; runs only if an operator decides to compensate after the pivot.
pub(super) struct Refund(pub(super) Payments);

#[derive(Deserialize, Serialize)]
pub(super) struct Taken {
    capture: String,
    amount: i64,
}

impl ProviderStep for Refund {
    type Request = Taken;

    fn asked(&self, saga: &SagaRecord) -> Result<Taken, BoxError> {
        Ok(Taken {
            capture: made(saga, CAPTURE)?.id,
            amount: Cart::of(saga)?.amount,
        })
    }

    async fn ask(&self, label: Label<'_>, taken: &Taken) -> Outcome<Made> {
        self.0.refund(label, &taken.capture, taken.amount).await
    }

    async fn find(&self, label: Label<'_>, taken: &Taken) -> Found<Made> {
        self.0.look_up(label, Wanted::refund(taken.amount)).await
    }
}
