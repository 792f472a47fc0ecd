//! The provider's state: all records of its ledger, by key, and the totals computed from them.
//!
//! Each key is decided once. Its record, a success or a refusal, is on disk before the response is
//! sent, and a repeated request with the key gets the same response.

use std::{collections::HashMap, io, path::Path};

use http::StatusCode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    around::{Names, now},
    ledger::Ledger,
    reply::{Refusal, Reply},
};

/// The business logic of a provider: its operations, and the state that they change.
pub(crate) trait Trade: Default + Send + 'static {
    /// A requested operation with its arguments.
    type Operation: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static;
    /// The names of the operations, as used in faults.
    const OPERATIONS: &'static [&'static str];

    /// Returns the name of the operation `asked`.
    fn operation(asked: &Self::Operation) -> &'static str;

    /// Returns the object that the operation would create, without its id, key and time.
    ///
    /// Changes nothing.
    fn evaluate(&self, asked: &Self::Operation) -> Result<Made, Refusal>;

    /// Updates the state with an operation that created the object `id`.
    fn take(&mut self, asked: &Self::Operation, id: &str);
}

/// The object that an operation creates.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) kind: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) members: Map<String, Value>,
}

impl Made {
    pub(crate) fn of<const N: usize>(
        kind: &'static str,
        prefix: &'static str,
        members: [(&str, Value); N],
    ) -> Self {
        let members = members.map(|(name, value)| (name.to_owned(), value));
        Self {
            kind,
            prefix,
            members: Map::from_iter(members),
        }
    }
}

/// A line of the ledger.
#[derive(Debug, Deserialize, Serialize)]
struct Record<A> {
    key: String,
    asked: A,
    status: u16,
    object: Map<String, Value>,
}

/// All decisions of a provider, in memory and in the ledger.
pub(crate) struct Decisions<T: Trade> {
    ledger: Ledger,
    names: Names,
    records: Vec<Record<T::Operation>>,
    by_key: HashMap<String, usize>,
    trade: T,
}

impl<T: Trade> Decisions<T> {
    /// Opens the ledger at `path` and rebuilds the state from its records.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (ledger, records) = Ledger::open(path)?;
        let mut decisions = Self {
            ledger,
            names: Names::default(),
            records: Vec::new(),
            by_key: HashMap::new(),
            trade: T::default(),
        };
        for record in records {
            decisions.take(record);
        }
        Ok(decisions)
    }

    /// Returns whether `key` has a decision.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// Executes the operation, or returns the recorded reply if `key` has a decision.
    pub(crate) fn ask(&mut self, key: &str, asked: &T::Operation) -> Reply {
        if let Some(known) = self.record(key) {
            return if known.asked == *asked {
                known.reply()
            } else {
                reused()
            };
        }
        let (status, object) = match self.trade.evaluate(asked) {
            Ok(made) => (StatusCode::CREATED, self.object(key, made)),
            // An object that is unknown now may exist later, so the key stays undecided.
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => return refusal.into(),
            Err(refusal) => (refusal.status, declined(key, refusal)),
        };
        let record = Record {
            key: key.to_owned(),
            asked: asked.clone(),
            status: status.as_u16(),
            object,
        };
        if let Err(error) = self.ledger.append(&record) {
            return Reply::failed(&format!("the ledger cannot be written: {error}"));
        }
        let reply = record.reply();
        self.take(record);
        reply
    }

    /// Returns 409 `duplicate` with the existing object if `key` has one.
    pub(crate) fn duplicate(&self, key: &str, asked: &T::Operation) -> Option<Reply> {
        let known = self.record(key)?;
        if known.asked != *asked {
            return Some(reused());
        }
        if known.status >= 400 {
            return Some(known.reply());
        }
        let body = json!({
            "code": "duplicate",
            "detail": "this operation was already done under this key",
            "id": known.object["id"],
            "existing": known.object,
        });
        Some(Reply::Said(StatusCode::CONFLICT, body))
    }

    /// Returns the decision under `key`.
    ///
    /// A ledger that broke during a write may hold a decision that is not in memory. Until the
    /// provider is restarted, an unknown key is then an error.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Value>, Reply> {
        match self.record(key) {
            Some(record) => Ok(Some(record.object.clone().into())),
            None if self.ledger.is_broken() => {
                Err(Reply::failed("a failed write may have stored this key"))
            }
            None => Ok(None),
        }
    }

    /// Returns all decisions, oldest first.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let objects = self.records.iter().map(|record| record.object.clone());
        objects.map(Value::from).collect()
    }

    fn record(&self, key: &str) -> Option<&Record<T::Operation>> {
        self.by_key.get(key).map(|place| &self.records[*place])
    }

    fn object(&self, key: &str, made: Made) -> Map<String, Value> {
        let mut object = made.members;
        object.insert("id".to_owned(), self.names.mint(made.prefix).into());
        object.insert("kind".to_owned(), made.kind.into());
        object.insert("key".to_owned(), key.into());
        object.insert("created_at".to_owned(), now().into());
        object
    }

    fn take(&mut self, record: Record<T::Operation>) {
        if let Some(id) = record.object.get("id").and_then(Value::as_str) {
            self.trade.take(&record.asked, id);
        }
        self.by_key.insert(record.key.clone(), self.records.len());
        self.records.push(record);
    }
}

impl<A> Record<A> {
    /// Returns the reply for this record; it is the same every time.
    fn reply(&self) -> Reply {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::CREATED);
        if status.is_client_error() {
            let text = |member| self.object.get(member).and_then(Value::as_str);
            let detail = text("detail").unwrap_or_default();
            return Reply::error(status, text("code").unwrap_or_default(), detail);
        }
        Reply::Said(status, Value::from(self.object.clone()))
    }
}

fn declined(key: &str, refusal: Refusal) -> Map<String, Value> {
    let members = [
        ("kind", "declined"),
        ("code", refusal.code),
        ("detail", refusal.detail),
        ("key", key),
    ];
    let members = members.map(|(name, text)| (name.to_owned(), Value::from(text)));
    let mut object = Map::from_iter(members);
    object.insert("created_at".to_owned(), now().into());
    object
}

fn reused() -> Reply {
    let detail = "the key was used for another request";
    Reply::from(Refusal::conflict("key_reused", detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payment::Payments;

    #[test]
    fn no_key_is_called_unused_while_the_ledger_may_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut decisions = Decisions::<Payments>::open(&folder.path().join("ledger")).unwrap();
        assert!(matches!(decisions.find("k"), Ok(None)));
        decisions.ledger.break_it();
        assert!(decisions.find("k").is_err());
    }
}
