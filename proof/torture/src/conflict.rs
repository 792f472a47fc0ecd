//! Conflict: another payload under the key of a request that ran, as the ledger records it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clients::{Operation, body};

/// Ledger of the conflicts.
pub(crate) const LEDGER: &str = "conflicts.jsonl";

/// A request that was held while it ran, and another payload that every shop got under its key meanwhile.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Conflict {
    pub(crate) held: Held,
    pub(crate) operation: Operation,
    /// When the first request had its key for certain.
    pub(crate) claimed_at: u64,
    /// When the first request could continue.
    pub(crate) released_at: u64,
    pub(crate) first: Exchange,
    /// The requests with the other payload.
    pub(crate) others: Vec<Exchange>,
    /// The first request, repeated at every shop until its response was final.
    pub(crate) after: Vec<Exchange>,
}

/// Where the first request is held.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Held {
    /// In the phase of a payment that calls the provider.
    Phase,
    /// In the transaction that changes an order.
    Transaction,
}

/// A request to a shop.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Exchange {
    pub(crate) node: String,
    /// Whether the shop claims the key of this operation when its handler has ended.
    pub(crate) is_optimistic: bool,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// The response in the format of the history; null if none arrived.
    pub(crate) response: Value,
}

impl Conflict {
    /// The requests with the other payload that were refused while the first one ran.
    pub(crate) fn early(&self) -> impl Iterator<Item = &Exchange> {
        let ran = self.claimed_at..=self.released_at;
        self.others.iter().filter(move |it| {
            it.is_mismatch() && ran.contains(&it.began) && ran.contains(&it.ended)
        })
    }

    /// Whether every shop that claims first refused the other payload while the first request ran.
    pub(crate) fn is_early(&self) -> bool {
        let early = self.early().filter(|it| !it.is_optimistic).count();
        let expected = self.others.iter().filter(|it| !it.is_optimistic).count();
        early == expected && expected > 0
    }

    /// The final responses to the first request.
    pub(crate) fn finals(&self) -> impl Iterator<Item = &Exchange> {
        let all = std::iter::once(&self.first).chain(&self.after);
        all.filter(|it| it.response["final"] == true)
    }

    /// The requests in the format of the history.
    pub(crate) fn history(&self) -> Vec<Value> {
        let unaltered = std::iter::once(&self.first).chain(&self.after);
        let unaltered = unaltered.map(|it| (it, false));
        let all = unaltered.chain(self.others.iter().map(|it| (it, true)));
        all.flat_map(|(it, is_altered)| it.history(&self.operation, is_altered))
            .collect()
    }

    /// The client of the operation, and its key.
    pub(crate) fn name(&self) -> String {
        let Operation {
            tenant, key, kind, ..
        } = &self.operation;
        format!("the operator's {kind:?} {key} for {tenant}")
    }
}

impl Held {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Transaction => "transaction",
        }
    }
}

impl Exchange {
    /// Whether the shop refused the request because the key has another payload.
    pub(crate) fn is_mismatch(&self) -> bool {
        self.is_conflict("payload_mismatch")
    }

    /// Whether the shop refused the request because its key is still running.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.is_conflict("in_progress")
    }

    /// The code of a problem; empty if there is none.
    pub(crate) fn code(&self) -> String {
        let body = body(&self.response);
        body["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The request and its outcome.
    fn history(&self, operation: &Operation, is_altered: bool) -> [Value; 2] {
        let word = match self.response["status"].as_u64() {
            None | Some(500..) => "info",
            Some(200..300) => "ok",
            Some(_) => "fail",
        };
        let (invoked, outcome) = (json!(operation), self.response.clone());
        [("invoke", self.began, invoked), (word, self.ended, outcome)].map(|(word, time, value)| {
            json!({
                "type": word, "f": operation.kind, "process": format!("operator-{}", self.began),
                "node": self.node, "time": time, "tenant": operation.tenant, "key": operation.key,
                "altered": is_altered, "value": value,
            })
        })
    }

    fn is_conflict(&self, suffix: &str) -> bool {
        self.response["status"] == 409 && self.code().ends_with(suffix)
    }
}
