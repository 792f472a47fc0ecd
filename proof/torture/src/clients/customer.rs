//! A client: sends each operation until it has a final response, and repeats some afterwards.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use hapax_testkit::wait::pace;
use tokio::time::Instant;

use super::{
    AGAIN, CLOSING, Shared, TENANTS,
    history::MEMORY,
    operation::Operation,
    wire::{Outcome, Response},
};
use crate::lines::now;

pub(super) struct Customer {
    shared: Arc<Shared>,
    tenant: &'static str,
    random: fastrand::Rng,
    /// Acknowledged operations, and when, which may be repeated.
    acknowledged: Vec<(u64, Operation)>,
    /// Charges that may be refunded, with their amounts.
    charges: Vec<(String, u64)>,
}

impl Customer {
    pub(super) fn new(
        shared: &Arc<Shared>,
        tenant: &'static str,
        seed: u64,
        acknowledged: Vec<(u64, Operation)>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            tenant,
            random: fastrand::Rng::with_seed(seed),
            acknowledged,
            charges: Vec::new(),
        }
    }

    /// First completes the operations that an earlier process left open, and then runs new ones,
    /// one at a time.
    pub(super) async fn run(mut self, open: Vec<(u64, Operation)>) -> anyhow::Result<()> {
        for (_, operation) in open {
            self.until_final(&operation, false, false).await?;
        }
        while !self.shared.is_closing() {
            pace(Duration::from_millis(
                self.random.u64(0..=self.shared.pause),
            ))
            .await;
            match self.random.u8(0..100) {
                0..28 => self.order().await?,
                28..30 => self.twins().await?,
                30..42 => self.pay().await?,
                42..54 => self.refund().await?,
                54..70 => self.check_out().await?,
                70..78 => self.sign_up().await?,
                78..86 => self.message().await?,
                86..90 => self.upload().await?,
                _ => self.repeat().await?,
            }
        }
        Ok(())
    }

    /// A new operation of this client.
    pub(super) fn new_operation(&self, operation: impl Fn(&str, u64) -> Operation) -> Operation {
        operation(self.tenant, self.shared.next_number())
    }

    /// An order, and sometimes changes of it, one after the other.
    async fn order(&mut self) -> anyhow::Result<()> {
        let operation = Operation::order(self.tenant, self.shared.next_number());
        let mut seen = self.perform(operation).await?;
        for _ in 0..self.random.u8(0..4) {
            let Some(response) = seen.filter(Response::is_success) else {
                break;
            };
            let (order, etag) = (response.json(), response.header("etag").unwrap_or_default());
            let Some(operation) =
                Operation::update(self.tenant, self.shared.next_number(), &order, etag)
            else {
                break;
            };
            seen = self.perform(operation).await?;
        }
        Ok(())
    }

    /// An order of each tenant at once, under the same key: the keys of tenants are independent.
    async fn twins(&mut self) -> anyhow::Result<()> {
        let number = self.shared.next_number();
        let both = TENANTS.map(|tenant| Operation::order(tenant, number));
        self.perform_both(both).await.map(drop)
    }

    async fn pay(&mut self) -> anyhow::Result<()> {
        let operation = Operation::payment(self.tenant, self.shared.next_number());
        let amount = operation.body["amount"].as_u64().unwrap_or_default();
        let response = self.perform(operation).await?.filter(Response::is_success);
        let id = response.and_then(|it| it.json()["id"].as_str().map(str::to_owned));
        self.charges.extend(id.map(|id| (id, amount)));
        Ok(())
    }

    /// Refunds more than half of a charge twice, under two keys at once: the second exceeds the charge.
    /// Then the provider reports the refund, under two message ids at once.
    async fn refund(&mut self) -> anyhow::Result<()> {
        let Some((charge, amount)) = self.charges.pop() else {
            return self.pay().await;
        };
        let both = [self.shared.next_number(), self.shared.next_number()];
        let both = both.map(|number| Operation::refund(self.tenant, number, &charge, amount));
        let responses = self.perform_both(both).await?.into_iter().flatten();
        for refund in responses.filter(Response::is_success) {
            let both = [self.shared.next_number(), self.shared.next_number()];
            let both = both.map(|number| Operation::notice(self.tenant, number, &refund.json()));
            self.perform_both(both).await?;
        }
        Ok(())
    }

    async fn perform_both(
        &mut self,
        both: [Operation; 2],
    ) -> anyhow::Result<Vec<Option<Response>>> {
        let sent = both
            .iter()
            .map(|operation| self.until_final(operation, true, false));
        let responses = try_join_all(sent).await?;
        for operation in both {
            self.add_acknowledged(operation);
        }
        Ok(responses)
    }

    async fn check_out(&mut self) -> anyhow::Result<()> {
        let can_be_shipped = self.random.u8(0..4) > 0;
        let operation = Operation::checkout(self.tenant, self.shared.next_number(), can_be_shipped);
        self.perform(operation).await.map(drop)
    }

    async fn sign_up(&mut self) -> anyhow::Result<()> {
        let operation = Operation::signup(self.tenant, self.shared.next_number());
        self.perform(operation).await.map(drop)
    }

    async fn message(&mut self) -> anyhow::Result<()> {
        let operation = Operation::message(self.tenant, self.shared.next_number());
        let market = Operation::market(self.tenant, self.shared.next_number(), &operation);
        match self.random.u8(0..4) {
            // The message of the second source is sent first, at the same time, or later.
            0 => {
                self.perform(market).await?;
                self.perform(operation).await.map(drop)
            }
            1 => self.perform_both([operation, market]).await.map(drop),
            2 => {
                self.perform(operation).await?;
                self.perform(market).await.map(drop)
            }
            _ => self.perform(operation).await.map(drop),
        }
    }

    async fn upload(&mut self) -> anyhow::Result<()> {
        let operation = Operation::upload(self.tenant, self.shared.next_number());
        self.perform(operation).await.map(drop)
    }

    /// Repeats an old request, or sends a different one under its key.
    async fn repeat(&mut self) -> anyhow::Result<()> {
        let from = now() - MEMORY;
        self.acknowledged.retain(|(at, _)| *at > from);
        let Some((_, operation)) = self.random.choice(&self.acknowledged).cloned() else {
            return Ok(());
        };
        match operation.altered().filter(|_| self.random.bool()) {
            Some(altered) => self.until_final(&altered, false, true).await?,
            None => self.until_final(&operation, false, false).await?,
        };
        Ok(())
    }

    /// Runs a new operation; one in four sends several requests at once.
    async fn perform(&mut self, operation: Operation) -> anyhow::Result<Option<Response>> {
        let copies = if self.random.u8(0..4) == 0 { 2 } else { 0 };
        let first = self.until_final(&operation, true, false);
        let others = try_join_all((0..copies).map(|_| self.until_final(&operation, true, false)));
        let (first, _) = futures_util::future::try_join(first, others).await?;
        self.add_acknowledged(operation);
        Ok(first)
    }

    fn add_acknowledged(&mut self, operation: Operation) {
        self.acknowledged.push((now(), operation));
    }

    /// Repeats a request under the same key until its response is final; `None` if the run is over
    /// before that.
    pub(super) async fn until_final(
        &self,
        operation: &Operation,
        is_new: bool,
        is_altered: bool,
    ) -> anyhow::Result<Option<Response>> {
        let (mut is_first, mut closed_at) = (is_new, None::<Instant>);
        loop {
            let process = self
                .shared
                .history
                .invoke(operation, is_first, is_altered)?;
            is_first = false;
            let outcome = self.shared.wire.send(operation).await?;
            self.shared
                .history
                .end(process, operation, is_altered, &outcome)?;
            if let Outcome::Responded(response) = outcome
                && !response.is_transient()
            {
                return Ok(Some(response));
            }
            if self.shared.is_closing()
                && closed_at.get_or_insert_with(Instant::now).elapsed() > CLOSING
            {
                return Ok(None);
            }
            pace(AGAIN).await;
        }
    }
}
