//! Operator: sends requests to shops under keys that only it uses, deletes keys, and records its
//! requests, the responses and its actions.
//!
//! Its operations are kept apart from those of the clients: the effects of a purge or a restore on
//! them are checked against `operator.jsonl`.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    clients::{Operation, PROCESSES_MAX, TENANTS, Witness, body},
    conflict::{self, Conflict},
    lines::{Lines, now},
};

/// Ledger of the operator's actions.
pub(crate) const LEDGER: &str = "operator.jsonl";

#[derive(Debug)]
pub(crate) struct Operator {
    lines: Lines,
    conflicts: Lines,
    next: u64,
}

impl Operator {
    pub(super) fn of(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            lines: Lines::open(&folder.join(LEDGER))?,
            conflicts: Lines::open(&folder.join(conflict::LEDGER))?,
            next: 0,
        })
    }

    /// A new operation; tenants alternate.
    pub(crate) fn new_operation<T>(&mut self, operation: impl Fn(&str, u64) -> T) -> T {
        let tenant = TENANTS[usize::try_from(self.next).unwrap_or_default() % TENANTS.len()];
        // No process of clients has this number.
        let number = self.next * PROCESSES_MAX + PROCESSES_MAX - 1;
        self.next += 1;
        operation(tenant, number)
    }

    /// Repeats a request at this shop until the response is final. Returns the id of the created
    /// resource, if a final response arrived.
    pub(crate) async fn send(
        &self,
        name: &str,
        address: &str,
        operation: &Operation,
    ) -> anyhow::Result<Option<String>> {
        let response = self.request(name, address, operation).await?;
        Ok(body(&response)["id"].as_str().map(str::to_owned))
    }

    /// The same; returns the response in the format of the history, or null if none was final in time.
    pub(crate) async fn request(
        &self,
        name: &str,
        address: &str,
        operation: &Operation,
    ) -> anyhow::Result<Value> {
        let at = now();
        let response = Witness::of(address).repeat(operation).await?;
        self.lines.add(&json!({
            "what": "requested", "node": name, "at": at, "until": now(), "operation": operation,
            "response": response,
        }))?;
        Ok(response)
    }

    /// Records a conflict.
    pub(super) fn record(&self, conflict: &Conflict) -> anyhow::Result<()> {
        self.conflicts.add(&serde_json::to_value(conflict)?)?;
        Ok(())
    }

    /// Records what was done to an operation: its key was deleted (`purged`) or has expired
    /// (`expired`), or a restore removes it (`forfeited`).
    pub(super) fn note(&self, what: &str, operation: &Operation) -> anyhow::Result<()> {
        self.lines
            .add(&json!({ "what": what, "at": now(), "operation": operation }))?;
        Ok(())
    }
}
