//! The audit log: which operator did what and when, and the outcome.
//!
//! Lines are only appended and never changed.

use hapax::{Timestamp, store::StoreError};
use serde_json::Value;

use super::{Actor, PAGE_MAX, Page};
use crate::{
    connection::Link,
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the line. Later lines have higher numbers.
    pub id: i64,
    /// The time, by the database's clock.
    pub at: Timestamp,
    /// The operator.
    pub actor: String,
    /// The tenant to which the operator was limited.
    pub tenant: Option<String>,
    /// The operation, such as `pause`.
    pub action: String,
    /// The object of the operation, such as `destination orders`.
    pub object: String,
    /// Details, as JSON.
    pub detail: String,
    /// The outcome: `done`, `nothing` or `refused`.
    pub outcome: String,
}

/// A filter for lines of the audit log. A field that is absent matches every line.
#[derive(Clone, Debug, Default)]
pub struct Acts {
    /// The operator.
    pub actor: Option<String>,
    /// The operation.
    pub action: Option<String>,
    /// The object of the operation.
    pub object: Option<String>,
}

/// A line to be written.
pub(super) struct Line<'a> {
    pub(super) actor: &'a Actor,
    pub(super) action: &'a str,
    pub(super) object: &'a str,
    pub(super) detail: &'a Value,
    pub(super) outcome: &'a str,
}

/// Writes a line in the transaction of its operation.
pub(super) async fn note(link: &Link, noted: Line<'_>) -> Result<(), tokio_postgres::Error> {
    let Line {
        actor,
        action,
        object,
        detail,
        outcome,
    } = noted;
    let name = text(&actor.name);
    let detail = match (&actor.reason, detail) {
        (Some(reason), Value::Object(said)) if !said.contains_key("reason") => {
            let mut said = said.clone();
            said.insert("reason".to_owned(), text(reason).into());
            Value::Object(said).to_string()
        }
        _ => detail.to_string(),
    };
    let (tenant, object) = (actor.tenant(), text(object));
    let params: [&dyn Param; 6] = [&name, &tenant, &action, &object, &detail, &outcome];
    link.ask(query!("admin/note"), &params).await.map(drop)
}

/// Lists lines below a number, the newest first.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    acts: &Acts,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Entry, i64>, StoreError> {
    let limit = limit.clamp(1, PAGE_MAX);
    let (before, tenant, count) = (before.unwrap_or(i64::MAX), actor.tenant(), rows(limit));
    let (who, action, object) = (
        super::filters::word(acts.actor.as_ref()),
        super::filters::word(acts.action.as_ref()),
        super::filters::word(acts.object.as_ref()),
    );
    let params: [&dyn Param; 6] = [&before, &tenant, &who, &action, &object, &count];
    let found = store.ask(query!("admin/audit"), &params).await?;
    let items: Vec<Entry> = found
        .iter()
        .map(|row| Entry {
            id: row.get("id"),
            at: row.get::<_, Moment>("at").0,
            actor: row.get("actor"),
            tenant: row.get("tenant"),
            action: row.get("action"),
            object: row.get("object"),
            detail: row.get("detail"),
            outcome: row.get("outcome"),
        })
        .collect();
    let next = items.last().filter(|_| items.len() == limit);
    let next = next.map(|entry| entry.id);
    Ok(Page { items, next })
}
