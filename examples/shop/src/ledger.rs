//! The ledger: one entry per effect, which lets tests check that each effect happened once.

use hapax::store::StoreError;

use crate::{
    database::{Rows, params, query},
    ids::Ids,
};

/// A new ledger entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) charge_id: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) amount: i64,
    /// The origin of the effect: `shop`, or the source of the webhook that reported it.
    pub(crate) source: &'a str,
    /// The part of a refund by which the refunds of the charge exceed it.
    pub(crate) excess: i64,
}

impl Entry<'_> {
    /// Writes the entry in the transaction of its effect.
    pub(crate) async fn write(self, tx: &mut impl Rows, ids: &Ids) -> Result<(), StoreError> {
        let row = params![
            self.tenant.to_owned(),
            ids.mint("le"),
            self.charge_id.to_owned(),
            self.kind.to_owned(),
            self.amount,
            self.source.to_owned(),
            self.excess,
            ids.now().as_millis(),
        ];
        tx.execute(query::LEDGER_INSERT, row).await.map(drop)
    }
}
