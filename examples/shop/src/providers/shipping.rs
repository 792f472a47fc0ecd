//! The operations of the shipping provider, each under a key of the caller.

use hapax::saga::Outcome;
use http::Uri;
use serde::{Deserialize, Serialize};

use super::{Found, Label, Made, Wanted, client::ProviderClient};

/// The client of the shipping provider.
#[derive(Clone, Debug)]
pub(crate) struct Shipping(ProviderClient);

/// A postal address.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    pub(crate) name: String,
    pub(crate) line1: String,
    pub(crate) city: String,
    pub(crate) postal_code: String,
    pub(crate) country: String,
}

/// A quantity of one SKU.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

/// The items to ship, and their address.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Parcel<'a> {
    pub(crate) address: &'a Address,
    pub(crate) items: &'a [Item],
}

#[derive(Serialize)]
struct Nothing {}

impl Shipping {
    /// Creates a client of the provider at `base`.
    pub(crate) fn at(base: &Uri) -> Self {
        Self(ProviderClient::at(base))
    }
}

impl Shipping {
    /// Creates a shipment.
    pub(crate) async fn ship(&self, label: Label<'_>, parcel: Parcel<'_>) -> Outcome<Made> {
        self.0
            .post("/shipments", label, Wanted::SHIPMENT, &parcel)
            .await
    }

    /// Cancels a shipment.
    pub(crate) async fn cancel(&self, label: Label<'_>, shipment: &str) -> Outcome<Made> {
        let path = format!("/shipments/{shipment}/cancel");
        self.0
            .post(&path, label, Wanted::CANCELLATION, &Nothing {})
            .await
    }

    /// Looks up the outcome of a key that was used for this request.
    pub(crate) async fn look_up(&self, label: Label<'_>, wanted: Wanted<'_>) -> Found<Made> {
        self.0.look_up(label, wanted).await
    }
}

impl Wanted<'_> {
    pub(crate) const SHIPMENT: Self = Self::thing("shipment");
    pub(crate) const CANCELLATION: Self = Self::thing("cancellation");
}
