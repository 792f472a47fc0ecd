//! The load: customers of both tenants, all at once.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{customer::Customer, market::Market};

/// Customers, half of them of each tenant.
const CUSTOMERS: usize = 6;

/// The customers at work.
#[derive(Debug)]
pub(super) struct Load {
    market: Arc<Market>,
    customers: JoinSet<()>,
}

impl Load {
    pub(super) fn start(market: &Arc<Market>, seed: u64) -> Self {
        let mut customers = JoinSet::new();
        for number in 0..CUSTOMERS {
            // Customers of the two tenants have the same names, so their keys are the same too.
            let (tenant, name) = (["alice", "bob"][number % 2], format!("c{}", number / 2));
            let seed = seed.wrapping_add(number as u64);
            customers.spawn(Customer::new(market, tenant, name, seed).run());
        }
        Self {
            market: Arc::clone(market),
            customers,
        }
    }

    /// Wants nothing more, and waits until every customer was told what became of its wishes.
    pub(super) async fn end(mut self) {
        self.market.close();
        while let Some(ended) = self.customers.join_next().await {
            ended.expect("a customer does not panic");
        }
    }
}
