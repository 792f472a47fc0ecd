//! Customer of the run: sends requests that must have their effect once, and repeats them.
//!
//! A customer records an intent before its first request, and repeats the request under the same
//! key until it gets a final response. Later it repeats old requests, sometimes several times at
//! once, and sometimes with another body. It waits if the receiver has too many events left to
//! receive, so that the deliveries after the last fault are bounded.

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

/// The maximum time for a final response after the faults have ended.
const LAST_WORD: Duration = Duration::from_secs(30);
/// Longer than any run.
const FOREVER: Duration = Duration::from_mins(10);

/// One customer.
#[derive(Debug)]
pub(super) struct Customer {
    market: Arc<Market>,
    tenant: &'static str,
    name: String,
    rng: fastrand::Rng,
    wants: usize,
    /// Charges that can be refunded, with their amounts.
    charges: Vec<(String, i64)>,
    /// The intents that have got a final response.
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

    /// Sends one request after the other until the market is closed.
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

    /// Sends one order and waits for its final response.
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

    /// Sends two concurrent refunds of more than half of a charge, with two keys. One of them must
    /// be rejected.
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

    /// Repeats an old request, or sends another body with its key.
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

    /// Sends a request. In one of four cases, several identical requests are sent at once.
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

    /// Repeats a request with the same key until the response is final.
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

    /// Waits for a random time, and as long as the receiver has too many events left to receive.
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
