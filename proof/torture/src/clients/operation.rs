//! Operation: an effect that a client wants to happen once, and its request.
//!
//! Every operation has a unique number, which is in its key and in its amount (a multiple of ten).
//! So the stored rows can be checked without trusting any response. The amount of an altered
//! request belongs to no operation.

use std::{
    hash::{DefaultHasher, Hasher as _},
    io::Cursor,
};

use image::{ImageFormat, Rgba, RgbaImage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PROCESSES_MAX;

/// Pixels of a picture, each way.
const SIDE: u32 = 16;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Order,
    /// A change of an order, which expects the version that the client has seen.
    Update,
    Payment,
    Refund,
    Checkout,
    Signup,
    /// A webhook that the shop consumes.
    Message,
    /// A webhook of a second source, with the id of a message of the first.
    Market,
    /// A webhook about a refund that the shop has made, which must have no effect.
    Notice,
    /// A picture, of which the shop makes thumbnails later.
    Upload,
}

/// An operation whose effect must happen exactly once.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) tenant: String,
    pub(crate) key: String,
    pub(crate) path: String,
    /// The version that a change expects.
    pub(crate) if_match: Option<String>,
    pub(crate) body: Value,
    /// A refund concerns this charge, a change concerns this order, and a message of the second
    /// source has the id of the message under this key.
    pub(crate) of: Option<String>,
}

impl Operation {
    /// An order.
    pub(crate) fn order(tenant: &str, number: u64) -> Self {
        let note = format!("{tenant}/{number}");
        let body = json!({
            "customer_id": "ann", "amount": amount(number), "currency": "EUR", "note": note,
        });
        Self::new(Kind::Order, tenant, number, "/orders", body)
    }

    /// A new amount for an order at this version.
    pub(crate) fn update(tenant: &str, number: u64, order: &Value, etag: &str) -> Option<Self> {
        let id = order["id"].as_str()?.to_owned();
        let body = json!({
            "customer_id": "ann", "amount": amount(number), "currency": "EUR", "note": order["note"],
        });
        let path = format!("/orders/{id}");
        Some(Self {
            if_match: Some(etag.to_owned()),
            of: Some(id),
            ..Self::new(Kind::Update, tenant, number, &path, body)
        })
    }

    /// A payment.
    pub(crate) fn payment(tenant: &str, number: u64) -> Self {
        let body = json!({ "amount": amount(number), "currency": "EUR", "card": "tok_ok" });
        Self::new(Kind::Payment, tenant, number, "/payments", body)
    }

    /// A refund of more than half of a charge: a second one exceeds the charge.
    pub(crate) fn refund(tenant: &str, number: u64, charge: &str, charged: u64) -> Self {
        let body = json!({ "charge_id": charge, "amount": (charged / 20 + 1) * 10 });
        Self {
            of: Some(charge.to_owned()),
            ..Self::new(Kind::Refund, tenant, number, "/refunds", body)
        }
    }

    /// A checkout; one that cannot be shipped has to be compensated.
    pub(crate) fn checkout(tenant: &str, number: u64, can_be_shipped: bool) -> Self {
        let country = if can_be_shipped { "DE" } else { "ZZ" };
        let body = json!({
            "items": [{ "sku": "sku_tea", "quantity": 1 + number % 3 }],
            "card": "tok_ok",
            "address": {
                "name": "Ann", "line1": format!("Street {number}"), "city": "Bonn",
                "postal_code": "53111", "country": country,
            },
        });
        Self::new(Kind::Checkout, tenant, number, "/checkouts", body)
    }

    /// A new user.
    pub(crate) fn signup(tenant: &str, number: u64) -> Self {
        let email = format!("n{number}@{tenant}.example");
        let body = json!({ "email": email, "name": "Ann" });
        Self::new(Kind::Signup, tenant, number, "/signups", body)
    }

    /// A message about a charge that the shop has not made.
    pub(crate) fn message(tenant: &str, number: u64) -> Self {
        let data =
            json!({ "charge_id": format!("ch_{tenant}_{number}"), "amount": amount(number) });
        let body = json!({
            "type": "payment.succeeded", "timestamp": "2026-01-01T00:00:00Z", "data": data,
        });
        Self::new(Kind::Message, tenant, number, "/webhooks/provider", body)
    }

    /// A message of a second source under the same id. Half of them have the content of the first
    /// message, and still have an effect; the others have different content.
    pub(crate) fn market(tenant: &str, number: u64, first: &Self) -> Self {
        let data = if (number / PROCESSES_MAX).is_multiple_of(2) {
            first.body["data"].clone()
        } else {
            json!({ "charge_id": format!("ch_{tenant}_{number}"), "amount": amount(number) })
        };
        let body = json!({
            "type": "payment.succeeded", "timestamp": "2026-01-01T00:00:00Z", "data": data,
        });
        Self {
            of: Some(first.key.clone()),
            ..Self::new(Kind::Market, tenant, number, "/webhooks/market", body)
        }
    }

    /// A message of the first source about a refund, whose response the client has.
    pub(crate) fn notice(tenant: &str, number: u64, refund: &Value) -> Self {
        let data = json!({
            "refund_id": refund["id"], "charge_id": refund["charge_id"], "amount": refund["amount"],
        });
        let body = json!({
            "type": "refund.succeeded", "timestamp": "2026-01-01T00:00:00Z", "data": data,
        });
        Self::new(Kind::Notice, tenant, number, "/webhooks/provider", body)
    }

    /// An image with unique content.
    pub(crate) fn upload(tenant: &str, number: u64) -> Self {
        let body = json!({ "name": format!("{tenant}-{number}.png"), "amount": amount(number) });
        Self::new(Kind::Upload, tenant, number, "/uploads", body)
    }

    /// The file of an upload, whose colour encodes the amount.
    pub(crate) fn file(&self) -> anyhow::Result<Vec<u8>> {
        let amount = u32::try_from(self.body["amount"].as_u64().unwrap_or_default())?;
        let picture = RgbaImage::from_pixel(SIDE, SIDE, Rgba(amount.to_le_bytes()));
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, ImageFormat::Png)?;
        Ok(file.into_inner())
    }

    /// A different request under the same key, which must never be executed.
    pub(crate) fn altered(&self) -> Option<Self> {
        let mut altered = self.clone();
        let body = &mut altered.body;
        match self.kind {
            Kind::Signup => body["name"] = json!("Bea"),
            Kind::Message | Kind::Market | Kind::Notice => {
                body["data"]["amount"] = json!(body["data"]["amount"].as_u64()? + 1);
            }
            _ => body["amount"] = json!(body["amount"].as_u64()? + 1),
        }
        Some(altered)
    }

    fn new(kind: Kind, tenant: &str, number: u64, path: &str, body: Value) -> Self {
        Self {
            kind,
            tenant: tenant.to_owned(),
            key: format!("k-{number}"),
            path: path.to_owned(),
            if_match: None,
            body,
            of: None,
        }
    }
}

/// The part of a file's content that makes it unique.
pub(crate) fn digest(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// Amount that identifies the effect of this number.
fn amount(number: u64) -> u64 {
    (number + 100) * 10
}

/// The body of a response as JSON; null if it is not JSON.
pub(crate) fn body(response: &Value) -> Value {
    let text = response["body"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}
