//! A client: sends each operation until it has a final response, and repeats some afterwards.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use hapax_testkit::wait::pace;
use tokio::time::Instant;

use super::{
    AGAIN, Desk, LAST_WORD, TENANTS,
    history::MEMORY,
    operation::Operation,
    wire::{Answer, Outcome},
};
use crate::lines::now;

pub(super) struct Customer {
    desk: Arc<Desk>,
    tenant: &'static str,
    random: fastrand::Rng,
    /// Acknowledged operations, and when, which may be repeated.
    granted: Vec<(u64, Operation)>,
    /// Charges that may be refunded, with their amounts.
    charges: Vec<(String, u64)>,
}

impl Customer {
    pub(super) fn new(
        desk: &Arc<Desk>,
        tenant: &'static str,
        seed: u64,
        granted: Vec<(u64, Operation)>,
    ) -> Self {
        Self {
            desk: Arc::clone(desk),
            tenant,
            random: fastrand::Rng::with_seed(seed),
            granted,
            charges: Vec::new(),
        }
    }

    /// First completes the operations that an earlier process left open, and then runs new ones,
    /// one at a time.
    pub(super) async fn run(mut self, open: Vec<(u64, Operation)>) -> anyhow::Result<()> {
        for (_, operation) in open {
            self.until_answered(&operation, false, false).await?;
        }
        while !self.desk.is_closing() {
            pace(Duration::from_millis(self.random.u64(0..=self.desk.pause))).await;
            match self.random.u8(0..100) {
                0..28 => self.order().await?,
                28..30 => self.twins().await?,
                30..42 => self.pay().await?,
                42..54 => self.refund().await?,
                54..70 => self.check_out().await?,
                70..78 => self.sign_up().await?,
                78..86 => self.message().await?,
                86..90 => self.upload().await?,
                _ => self.ask_again().await?,
            }
        }
        Ok(())
    }

    /// A new operation of this client.
    pub(super) fn mint(&self, operation: impl Fn(&str, u64) -> Operation) -> Operation {
        operation(self.tenant, self.desk.mint())
    }

    /// An order, and sometimes changes of it, one upon the other.
    async fn order(&mut self) -> anyhow::Result<()> {
        let operation = Operation::order(self.tenant, self.desk.mint());
        let mut seen = self.want(operation).await?;
        for _ in 0..self.random.u8(0..4) {
            let Some(answer) = seen.filter(Answer::is_success) else {
                break;
            };
            let (order, etag) = (answer.json(), answer.header("etag").unwrap_or_default());
            let Some(operation) = Operation::update(self.tenant, self.desk.mint(), &order, etag)
            else {
                break;
            };
            seen = self.want(operation).await?;
        }
        Ok(())
    }

    /// An order of each tenant, under one key at once: neither knows of the other.
    async fn twins(&mut self) -> anyhow::Result<()> {
        let number = self.desk.mint();
        let both = TENANTS.map(|tenant| Operation::order(tenant, number));
        self.want_both(both).await
    }

    async fn pay(&mut self) -> anyhow::Result<()> {
        let operation = Operation::payment(self.tenant, self.desk.mint());
        let amount = operation.body["amount"].as_u64().unwrap_or_default();
        let answer = self.want(operation).await?.filter(Answer::is_success);
        let id = answer.and_then(|it| it.json()["id"].as_str().map(str::to_owned));
        self.charges.extend(id.map(|id| (id, amount)));
        Ok(())
    }

    /// Gives more than half of a charge back twice, under two keys at once: one is too much.
    async fn refund(&mut self) -> anyhow::Result<()> {
        let Some((charge, amount)) = self.charges.pop() else {
            return self.pay().await;
        };
        let both = [self.desk.mint(), self.desk.mint()];
        let both = both.map(|number| Operation::refund(self.tenant, number, &charge, amount));
        self.want_both(both).await
    }

    async fn want_both(&mut self, both: [Operation; 2]) -> anyhow::Result<()> {
        let asked = both
            .iter()
            .map(|operation| self.until_answered(operation, true, false));
        try_join_all(asked).await?;
        for operation in both {
            self.remember(operation);
        }
        Ok(())
    }

    async fn check_out(&mut self) -> anyhow::Result<()> {
        let can_be_shipped = self.random.u8(0..4) > 0;
        let operation = Operation::checkout(self.tenant, self.desk.mint(), can_be_shipped);
        self.want(operation).await.map(drop)
    }

    async fn sign_up(&mut self) -> anyhow::Result<()> {
        let operation = Operation::signup(self.tenant, self.desk.mint());
        self.want(operation).await.map(drop)
    }

    async fn message(&mut self) -> anyhow::Result<()> {
        let operation = Operation::message(self.tenant, self.desk.mint());
        let market = Operation::market(self.tenant, self.desk.mint(), &operation);
        match self.random.u8(0..4) {
            // The message of the second source is sent first, at the same time, or later.
            0 => {
                self.want(market).await?;
                self.want(operation).await.map(drop)
            }
            1 => self.want_both([operation, market]).await,
            2 => {
                self.want(operation).await?;
                self.want(market).await.map(drop)
            }
            _ => self.want(operation).await.map(drop),
        }
    }

    async fn upload(&mut self) -> anyhow::Result<()> {
        let operation = Operation::upload(self.tenant, self.desk.mint());
        self.want(operation).await.map(drop)
    }

    /// Repeats an old request, or asks for something else under its key.
    async fn ask_again(&mut self) -> anyhow::Result<()> {
        let from = now() - MEMORY;
        self.granted.retain(|(at, _)| *at > from);
        let Some((_, operation)) = self.random.choice(&self.granted).cloned() else {
            return Ok(());
        };
        match operation.altered().filter(|_| self.random.bool()) {
            Some(altered) => self.until_answered(&altered, false, true).await?,
            None => self.until_answered(&operation, false, false).await?,
        };
        Ok(())
    }

    /// Asks for something, one in four times by several requests at once.
    async fn want(&mut self, operation: Operation) -> anyhow::Result<Option<Answer>> {
        let copies = if self.random.u8(0..4) == 0 { 2 } else { 0 };
        let first = self.until_answered(&operation, true, false);
        let others =
            try_join_all((0..copies).map(|_| self.until_answered(&operation, true, false)));
        let (first, _) = futures_util::future::try_join(first, others).await?;
        self.remember(operation);
        Ok(first)
    }

    fn remember(&mut self, operation: Operation) {
        self.granted.push((now(), operation));
    }

    /// Asks under the same key until the answer is one that will stay; `None` when the run is over
    /// before that.
    pub(super) async fn until_answered(
        &self,
        operation: &Operation,
        is_new: bool,
        is_altered: bool,
    ) -> anyhow::Result<Option<Answer>> {
        let (mut is_first, mut closed_at) = (is_new, None::<Instant>);
        loop {
            let process = self.desk.history.invoke(operation, is_first, is_altered)?;
            is_first = false;
            let outcome = self.desk.wire.ask(operation).await?;
            self.desk
                .history
                .end(process, operation, is_altered, &outcome)?;
            if let Outcome::Answered(answer) = outcome
                && !answer.is_passing()
            {
                return Ok(Some(answer));
            }
            if self.desk.is_closing()
                && closed_at.get_or_insert_with(Instant::now).elapsed() > LAST_WORD
            {
                return Ok(None);
            }
            pace(AGAIN).await;
        }
    }
}
