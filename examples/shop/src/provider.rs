//! A payment provider at the other end of a network that is only simulated.
//!
//! It keeps its own ledger, in commits of its own: what it has charged is charged, whatever
//! becomes of the request that asked. It takes a key with every charge and charges once under it;
//! who comes again is told of the same charge.

use std::time::Duration;

use hapax::{Timestamp, failpoint::Failpoints, store::StoreError};
use tokio::time::sleep;

use crate::{
    database::{Database, params, query},
    ids::Ids,
};

/// How long the provider thinks about `tok_slow`.
const SLOW: Duration = Duration::from_secs(3);

/// The provider's front desk.
#[derive(Debug)]
pub(crate) struct Provider<D> {
    store: D,
    ids: Ids,
    failpoints: Failpoints,
}

/// What is to be charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) card: Card,
    pub(crate) amount: i64,
    pub(crate) currency: &'a str,
}

/// A card that the provider knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// It is charged.
    Ok,
    /// It is refused.
    Declined,
    /// It is charged at once, and the answer takes a while.
    Slow,
}

/// A charge, as the provider remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    pub(crate) id: String,
    pub(crate) created_at: Timestamp,
}

/// Why nothing was charged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// The card is not good.
    #[error("card was declined")]
    Declined,
    /// The key was used for something else.
    #[error("provider key was used for another charge")]
    Mismatch,
    /// The provider cannot be reached.
    #[error("provider is unavailable")]
    Unavailable(#[source] StoreError),
}

impl<D: Database> Provider<D> {
    pub(crate) fn new(store: D, ids: Ids, failpoints: Failpoints) -> Self {
        Self {
            store,
            ids,
            failpoints,
        }
    }

    /// Charges a card under `key`, or finds the charge that was made under it.
    pub(crate) async fn charge(
        &self,
        key: &str,
        order: Order<'_>,
    ) -> Result<Charged, ProviderError> {
        if order.card == Card::Declined {
            return Err(ProviderError::Declined);
        }
        self.failpoints.hit("provider.charge.before");
        let row = params![
            key.to_owned(),
            self.ids.mint("ch"),
            order.amount,
            order.currency.to_owned(),
            self.ids.now().as_millis(),
        ];
        let charged = self.store.execute(query::PROVIDER_CHARGE, row).await;
        charged.map_err(ProviderError::Unavailable)?;
        self.failpoints.hit("provider.charge.after");
        if order.card == Card::Slow {
            sleep(SLOW).await;
        }
        self.find(key, order).await
    }

    async fn find(&self, key: &str, order: Order<'_>) -> Result<Charged, ProviderError> {
        let read = async {
            let found = self
                .store
                .select(query::PROVIDER_FIND, params![key.to_owned()]);
            let Some(mut row) = found.await?.into_iter().next() else {
                return Ok(None);
            };
            let same = row.integer(1)? == order.amount && row.text(2)? == order.currency;
            let charged = Charged {
                id: row.text(0)?,
                created_at: Timestamp::from_millis(row.integer(3)?),
            };
            Ok(same.then_some(charged))
        };
        let found = read.await.map_err(ProviderError::Unavailable)?;
        found.ok_or(ProviderError::Mismatch)
    }
}
