//! The audit log: who did what, when, and what came of it. It is appended to and never changed.

use hapax::{Timestamp, store::StoreError};
use serde_json::Value;

use super::{Actor, PAGE_MAX, Page};
use crate::{
    connection::Link,
    outbox::rows,
    postgres::Postgres,
    query,
    settle::text,
    value::{Moment, Param},
};

/// One act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number: a later one is higher.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// The tenant that the actor was bound to.
    pub tenant: Option<String>,
    /// What was done, such as `pause`.
    pub action: String,
    /// What it was done to, such as `destination orders`.
    pub object: String,
    /// More about it, as JSON.
    pub detail: String,
    /// What came of it: `done`, `nothing` or `refused`.
    pub outcome: String,
}

/// Which acts are meant; what is absent fits every one.
#[derive(Clone, Debug, Default)]
pub struct Acts {
    /// Who did them.
    pub actor: Option<String>,
    /// What was done.
    pub action: Option<String>,
    /// What it was done to.
    pub object: Option<String>,
}

/// A line as it is written.
pub(super) struct Line<'a> {
    pub(super) actor: &'a Actor,
    pub(super) action: &'a str,
    pub(super) object: &'a str,
    pub(super) detail: &'a Value,
    pub(super) outcome: &'a str,
}

/// Writes an act down, in its transaction.
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
    link.ask(query!("operate/note"), &params).await.map(drop)
}

/// Lists acts below a number, the newest first.
///
/// # Errors
/// Fails when the store cannot be read.
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
        super::find::word(acts.actor.as_ref()),
        super::find::word(acts.action.as_ref()),
        super::find::word(acts.object.as_ref()),
    );
    let params: [&dyn Param; 6] = [&before, &tenant, &who, &action, &object, &count];
    let found = store.ask(query!("operate/audit"), &params).await?;
    let items: Vec<Entry> = found
        .iter()
        .map(|row| Entry {
            id: row.get(0),
            at: row.get::<_, Moment>(1).0,
            actor: row.get(2),
            tenant: row.get(3),
            action: row.get(4),
            object: row.get(5),
            detail: row.get(6),
            outcome: row.get(7),
        })
        .collect();
    let next = items.last().filter(|_| items.len() == limit);
    let next = next.map(|entry| entry.id);
    Ok(Page { items, next })
}
