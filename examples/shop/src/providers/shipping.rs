//! The shipping provider's operations, each under a key of the caller's.

use hapax::saga::Outcome;
use http::Uri;
use serde::{Deserialize, Serialize};

use super::{Found, Label, Made, Wanted, desk::Desk};

/// The way to the shipping provider.
#[derive(Clone, Debug)]
pub(crate) struct Shipping(Desk);

/// Where something goes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    pub(crate) name: String,
    pub(crate) line1: String,
    pub(crate) city: String,
    pub(crate) postal_code: String,
    pub(crate) country: String,
}

/// So many of one thing.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

/// What goes where.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Parcel<'a> {
    pub(crate) address: &'a Address,
    pub(crate) items: &'a [Item],
}

#[derive(Serialize)]
struct Nothing {}

impl Shipping {
    /// The provider at `base`.
    pub(crate) fn at(base: &Uri) -> Self {
        Self(Desk::at(base))
    }
}

impl Shipping {
    /// Sends a parcel.
    pub(crate) async fn ship(&self, label: Label<'_>, parcel: Parcel<'_>) -> Outcome<Made> {
        self.0
            .post("/shipments", label, Wanted::SHIPMENT, &parcel)
            .await
    }

    /// Takes a shipment back.
    pub(crate) async fn cancel(&self, label: Label<'_>, shipment: &str) -> Outcome<Made> {
        let path = format!("/shipments/{shipment}/cancel");
        self.0
            .post(&path, label, Wanted::CANCELLATION, &Nothing {})
            .await
    }

    /// What became of a key under which this was asked for.
    pub(crate) async fn look_up(&self, label: Label<'_>, wanted: Wanted<'_>) -> Found<Made> {
        self.0.look_up(label, wanted).await
    }
}

impl Wanted<'_> {
    pub(crate) const SHIPMENT: Self = Self::thing("shipment");
    pub(crate) const CANCELLATION: Self = Self::thing("cancellation");
}
