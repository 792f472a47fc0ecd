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
    /// Where the entry comes from: `shop`, or the source of a webhook.
    pub(crate) source: &'a str,
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
            ids.now().as_millis(),
        ];
        tx.execute(query::LEDGER_INSERT, row).await.map(drop)
    }
}
