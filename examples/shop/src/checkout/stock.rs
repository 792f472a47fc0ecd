//! The stock step of a checkout, which runs in one transaction with the step's row.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    saga::{LocalStep, Refusal, SagaRecord},
    sink::BoxError,
};

use super::Cart;
use crate::database::{Rows, params, query};

/// The code of a refusal because stock is insufficient.
pub(crate) const OUT_OF_STOCK: &str = "out_of_stock";

/// Reserves all items, or none.
pub(super) struct Reserve;

impl<Tx: Rows> LocalStep<Tx> for Reserve {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            for item in in_order(Cart::of(saga)?) {
                let row = params![item.sku.clone(), i64::from(item.quantity)];
                if tx.execute(query::STOCK_RESERVE, row).await? == 0 {
                    let detail = format!("there is not enough {} in stock", item.sku);
                    return Ok(Err(Refusal::new(OUT_OF_STOCK, detail)));
                }
            }
            Ok(Ok(Bytes::new()))
        })
    }
}

/// Returns all reserved items to stock.
pub(super) struct Release;

impl<Tx: Rows> LocalStep<Tx> for Release {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            for item in in_order(Cart::of(saga)?) {
                let row = params![item.sku.clone(), i64::from(item.quantity)];
                tx.execute(query::STOCK_RELEASE, row).await?;
            }
            Ok(Ok(Bytes::new()))
        })
    }
}

/// Sorts the items by SKU, so that concurrent checkouts lock rows in the same order.
fn in_order(cart: Cart) -> Vec<crate::providers::Item> {
    let mut items = cart.items;
    items.sort_by(|one, other| one.sku.cmp(&other.sku));
    items
}
