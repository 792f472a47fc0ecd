//! The shipping steps of a checkout: ship and cancel.

use hapax::{
    saga::{Found, Outcome, SagaRecord},
    sink::BoxError,
};
use serde::{Deserialize, Serialize};

use super::{Cart, SHIP, made, remote::ProviderStep};
use crate::providers::{Address, Item, Label, Made, Parcel, Shipping, Wanted};

/// Creates the shipment.
pub(super) struct Ship(pub(super) Shipping);

#[derive(Deserialize, Serialize)]
pub(super) struct Packed {
    address: Address,
    items: Vec<Item>,
}

impl ProviderStep for Ship {
    type Request = Packed;

    fn asked(&self, saga: &SagaRecord) -> Result<Packed, BoxError> {
        let Cart { address, items, .. } = Cart::of(saga)?;
        Ok(Packed { address, items })
    }

    async fn ask(&self, label: Label<'_>, packed: &Packed) -> Outcome<Made> {
        let parcel = Parcel {
            address: &packed.address,
            items: &packed.items,
        };
        self.0.ship(label, parcel).await
    }

    async fn find(&self, label: Label<'_>, _: &Packed) -> Found<Made> {
        self.0.look_up(label, Wanted::SHIPMENT).await
    }
}

/// Cancels the shipment.
pub(super) struct Cancel(pub(super) Shipping);

#[derive(Deserialize, Serialize)]
pub(super) struct Shipped {
    shipment: String,
}

impl ProviderStep for Cancel {
    type Request = Shipped;
    const NOTHING_LEFT: Option<&'static str> = Some("cancelled");

    fn asked(&self, saga: &SagaRecord) -> Result<Shipped, BoxError> {
        let shipment = made(saga, SHIP)?.id;
        Ok(Shipped { shipment })
    }

    async fn ask(&self, label: Label<'_>, shipped: &Shipped) -> Outcome<Made> {
        self.0.cancel(label, &shipped.shipment).await
    }

    async fn find(&self, label: Label<'_>, _: &Shipped) -> Found<Made> {
        self.0.look_up(label, Wanted::CANCELLATION).await
    }
}
