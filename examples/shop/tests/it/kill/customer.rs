//! Somebody who wants things to happen once, and says so more than once.
//!
//! A customer names what it wants before it asks, asks again under the same
//! name until it is answered, and asks again after that, sometimes several
//! times at the same moment, sometimes for something else. It waits for the
//! receiver when that falls behind, so that what is left to deliver after the
//! last fault is bounded.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use hapax_testkit::wait::Patience;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    journal::{Attempt, Intent, Operation, Outcome},
    market::Market,
    request,
};

/// How long an intent may go unanswered once the faults are over.
const LAST_WORD: Duration = Duration::from_secs(30);
/// More than any run lasts.
const FOREVER: Duration = Duration::from_mins(10);

/// One customer.
#[derive(Debug)]
pub(super) struct Customer {
    market: Arc<Market>,
    tenant: &'static str,
    name: String,
    rng: fastrand::Rng,
    wants: usize,
    /// Charges that may be refunded, with their amounts.
    charges: Vec<(String, i64)>,
    /// Intents that were answered.
    meant: Vec<usize>,
}

impl Customer {
    pub(super) fn new(market: &Arc<Market>, tenant: &'static str, name: String, seed: u64) -> Self {
        Self {
            market: Arc::clone(market),
            tenant,
            name,
            rng: fastrand::Rng::with_seed(seed),
            wants: 0,
            charges: Vec::new(),
            meant: Vec::new(),
        }
    }

    /// Wants one thing after the other until the market closes.
    pub(super) async fn run(mut self) {
        while self.market.closed_for().is_none() {
            self.breathe().await;
            match self.rng.u8(0..100) {
                0..62 => self.order().await,
                62..74 => self.pay().await,
                74..85 => self.refund().await,
                85..90 => self.sign_up().await,
                90..93 => self.message().await,
                _ => self.ask_again().await,
            }
        }
    }

    /// Wants one order, and waits for it.
    pub(super) async fn order(&mut self) {
        let amount = self.rng.i64(1..100_000);
        let key = self.key();
        let note = format!("{}/{key}", self.tenant);
        let body = json!({
            "customer_id": self.name, "amount": amount, "currency": "EUR", "note": note,
        });
        self.want(Operation::Order, key, body).await;
    }

    async fn pay(&mut self) {
        let (amount, key) = (self.rng.i64(100..10_000), self.key());
        let body = json!({ "amount": amount, "currency": "EUR", "card": "tok_ok" });
        let answer = self.want(Operation::Payment, key, body).await;
        if let Some(id) = answer.as_ref().and_then(Answer::id) {
            self.charges.push((id, amount));
        }
    }

    /// Refunds more than half of a charge twice, under two keys at once: one of them is too much.
    async fn refund(&mut self) {
        let Some((charge_id, amount)) = self.charges.pop() else {
            return self.pay().await;
        };
        let body = json!({ "charge_id": charge_id, "amount": amount / 2 + 1 });
        let intents = [self.key(), self.key()].map(|key| self.mean(Operation::Refund, key, &body));
        join_all(intents.map(|place| self.until_answered(place, false))).await;
        self.meant.extend(intents);
    }

    async fn sign_up(&mut self) {
        let key = self.key();
        let email = format!("{key}@{}.example", self.tenant);
        let body = json!({ "email": email, "name": "Ann" });
        self.want(Operation::Signup, key, body).await;
    }

    async fn message(&mut self) {
        let key = self.key();
        let key = format!("{}-{key}", self.tenant);
        let data = json!({ "charge_id": format!("ch_{key}"), "amount": self.rng.i64(1..1_000) });
        let timestamp = "2026-01-01T00:00:00Z";
        let body = json!({ "type": "payment.succeeded", "timestamp": timestamp, "data": data });
        self.want(Operation::Message, key, body).await;
    }

    /// Repeats an old request, or asks for something else under its key.
    async fn ask_again(&mut self) {
        let Some(place) = self.rng.choice(&self.meant).copied() else {
            return;
        };
        let altered = self.rng.bool();
        self.until_answered(place, altered).await;
    }

    fn key(&mut self) -> String {
        self.wants += 1;
        format!("{}-{}", self.name, self.wants)
    }

    fn mean(&self, operation: Operation, key: String, body: &Value) -> usize {
        let (tenant, body) = (self.tenant, body.clone());
        self.market.journal.mean(Intent {
            tenant,
            operation,
            key,
            body,
        })
    }

    /// Asks for something, one in four times by several requests at once.
    async fn want(&mut self, operation: Operation, key: String, body: Value) -> Option<Answer> {
        let place = self.mean(operation, key, &body);
        let copies = if self.rng.u8(0..4) == 0 {
            self.rng.usize(2..4)
        } else {
            1
        };
        let asked = (0..copies).map(|_| self.until_answered(place, false));
        let answer = join_all(asked).await.into_iter().next().flatten()?;
        self.meant.push(place);
        Some(answer)
    }

    /// Asks under the same key until the answer is one that will stay.
    async fn until_answered(&self, place: usize, altered: bool) -> Option<Answer> {
        let market = &*self.market;
        let intent = market.journal.intent(place);
        let body = if altered {
            request::altered(&intent.body)
        } else {
            intent.body.clone()
        };
        let body = Bytes::from(body.to_string());
        let patience = Patience::within(FOREVER);
        loop {
            let began = market.stopwatch.read();
            let outcome = request::send(&market.client, &intent, body.clone()).await;
            market.journal.note(Attempt {
                intent: place,
                altered,
                began,
                ended: market.stopwatch.read(),
                outcome: outcome.clone(),
            });
            if let Outcome::Answered(answer) = outcome
                && !answer.is_passing()
            {
                if intent.operation.event().is_some() && answer.is_success() {
                    market.promise(place);
                }
                return Some(answer);
            }
            if market.closed_for().is_some_and(|since| since > LAST_WORD) {
                return None;
            }
            patience.pause().await;
        }
    }

    /// Thinks for a moment, and waits for a receiver that is behind.
    async fn breathe(&mut self) {
        let patience = Patience::within(FOREVER);
        for _ in 0..self.rng.u8(1..6) {
            patience.pause().await;
        }
        while self.market.is_behind() && self.market.closed_for().is_none() {
            patience.pause().await;
        }
    }
}
