//! Load of the run: concurrent customers of both tenants.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{customer::Customer, market::Market};

/// The number of customers. Each tenant has half of them.
const CUSTOMERS: usize = 6;

/// The running customers.
#[derive(Debug)]
pub(super) struct Load {
    market: Arc<Market>,
    customers: JoinSet<()>,
}

impl Load {
    pub(super) fn start(market: &Arc<Market>, seed: u64) -> Self {
        let mut customers = JoinSet::new();
        for number in 0..CUSTOMERS {
            // Customers of the two tenants have the same names, and therefore the same keys.
            let (tenant, name) = (["alice", "bob"][number % 2], format!("c{}", number / 2));
            let seed = seed.wrapping_add(number as u64);
            customers.spawn(Customer::new(market, tenant, name, seed).run());
        }
        Self {
            market: Arc::clone(market),
            customers,
        }
    }

    /// Closes the market, and waits until every customer has got its final responses.
    pub(super) async fn end(mut self) {
        self.market.close();
        while let Some(ended) = self.customers.join_next().await {
            ended.expect("a customer does not panic");
        }
    }
}
