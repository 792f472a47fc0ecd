//! The input of a checkout: items, card and address.

use hapax::{saga::SagaRecord, sink::BoxError};
use hapax_http::problem::Problem;
use serde::{Deserialize, Serialize};

use crate::{
    members,
    money::AMOUNTS,
    providers::{Address, Item},
};

/// The most items of one cart, and the largest quantity of one item.
const ITEMS_MAX: usize = 20;
const QUANTITY_MAX: u32 = 1_000;
/// The items that the shop sells, with their prices in [`CURRENCY`].
const CATALOGUE: [(&str, i64); 3] = [("sku_tea", 500), ("sku_mug", 1_200), ("sku_rare", 9_900)];
const CURRENCY: &str = "EUR";

/// The body of a request to start a checkout.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stated {
    items: Vec<Item>,
    card: String,
    address: Address,
}

/// The validated input of a checkout, with its total, as stored in the saga.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Cart {
    pub(crate) items: Vec<Item>,
    pub(crate) card: String,
    pub(crate) address: Address,
    pub(crate) amount: i64,
    pub(crate) currency: String,
}

impl Stated {
    /// Validates the request and computes its total.
    pub(crate) fn check(self) -> Result<Cart, Problem> {
        let amount = sum(&self.items)?;
        members::card(&self.card)?;
        check_address(&self.address)?;
        Ok(Cart {
            items: self.items,
            card: self.card,
            address: self.address,
            amount,
            currency: CURRENCY.to_owned(),
        })
    }
}

impl Cart {
    /// Reads the cart from the input of a saga.
    pub(crate) fn of(saga: &SagaRecord) -> Result<Self, BoxError> {
        Ok(serde_json::from_slice(&saga.input)?)
    }
}

fn sum(items: &[Item]) -> Result<i64, Problem> {
    if !(1..=ITEMS_MAX).contains(&items.len()) {
        let detail = format!("items must have 1 to {ITEMS_MAX} entries");
        return Err(Problem::invalid("items", detail));
    }
    let mut amount = 0;
    for (place, item) in items.iter().enumerate() {
        let Some((_, price)) = CATALOGUE.iter().find(|(sku, _)| *sku == item.sku) else {
            let known = CATALOGUE.map(|(sku, _)| sku).join(", ");
            return Err(Problem::invalid("items", format!("sku: expected {known}")));
        };
        if items[..place].iter().any(|other| other.sku == item.sku) {
            let detail = format!("items must not list {} twice", item.sku);
            return Err(Problem::invalid("items", detail));
        }
        if !(1..=QUANTITY_MAX).contains(&item.quantity) {
            let detail = format!("quantity must be 1 to {QUANTITY_MAX}");
            return Err(Problem::invalid("items", detail));
        }
        amount += price * i64::from(item.quantity);
    }
    if !AMOUNTS.contains(&amount) {
        let detail = format!("items cost {amount}, the maximum is {}", AMOUNTS.end());
        return Err(Problem::invalid("items", detail));
    }
    Ok(amount)
}

fn check_address(address: &Address) -> Result<(), Problem> {
    for (member, value, most) in [
        ("address.name", &address.name, 100),
        ("address.line1", &address.line1, 200),
        ("address.city", &address.city, 100),
        ("address.postal_code", &address.postal_code, 20),
    ] {
        members::line(member, value, most)?;
    }
    let is_country =
        address.country.len() == 2 && address.country.bytes().all(|it| it.is_ascii_uppercase());
    if !is_country {
        let detail = "address.country must be two capital letters, such as DE";
        return Err(Problem::invalid("address.country", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cart_has_the_sum_of_its_items() {
        let cart = stated(r#"[{"sku":"sku_tea","quantity":2},{"sku":"sku_rare","quantity":1}]"#);
        let cart = cart.check().unwrap();
        assert_eq!((cart.amount, cart.currency.as_str()), (10_900, "EUR"));
    }

    #[test]
    fn what_cannot_be_bought_is_refused_by_name() {
        for items in [
            "[]",
            r#"[{"sku":"sku_none","quantity":1}]"#,
            r#"[{"sku":"sku_tea","quantity":0}]"#,
            r#"[{"sku":"sku_tea","quantity":1001}]"#,
            r#"[{"sku":"sku_tea","quantity":1},{"sku":"sku_tea","quantity":1}]"#,
        ] {
            assert!(stated(items).check().is_err(), "{items}");
        }
        let mut other = stated(r#"[{"sku":"sku_tea","quantity":1}]"#);
        other.card = "4242".to_owned();
        assert!(other.check().is_err());
        for country in ["", "de", "DEU", "D\u{c9}"] {
            let mut other = stated(r#"[{"sku":"sku_tea","quantity":1}]"#);
            other.address.country = country.to_owned();
            assert!(other.check().is_err(), "{country}");
        }
    }

    fn stated(items: &str) -> Stated {
        let address =
            r#"{"name":"Ann","line1":"Way 1","city":"Ulm","postal_code":"89073","country":"DE"}"#;
        let text = format!(r#"{{"items":{items},"card":"tok_ok","address":{address}}}"#);
        serde_json::from_str(&text).unwrap()
    }
}
