//! The audit log: which operator did what and when, and the outcome.
//!
//! Lines are only appended and never changed.

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, AuditAdmin, AuditEntry, AuditFilter, PAGE_MAX, Page, read_cursor,
};
use serde_json::Value;

use super::{audited::AuditedTransaction, filters::word};
use crate::{
    connection::Link,
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

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
    let detail = AuditEntry::detail(actor, detail).to_string();
    let (tenant, object) = (actor.tenant(), text(object));
    let params: [&dyn Param; 6] = [&name, &tenant, &action, &object, &detail, &outcome];
    link.ask(query!("admin/note"), &params).await.map(drop)
}

#[async_trait]
impl AuditAdmin for Postgres {
    async fn record(
        &self,
        actor: &Actor,
        action: &str,
        object: &str,
        detail: &Value,
    ) -> Result<(), AdminError> {
        let mut act = AuditedTransaction::begin(self).await?;
        act.note(actor, action, object, detail, "done").await?;
        Ok(act.commit().await?)
    }

    async fn audit_log(
        &self,
        actor: &Actor,
        filter: &AuditFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<AuditEntry>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let before = read_cursor(before, |text| text.parse().ok())?;
        let (before, tenant, count) = (before.unwrap_or(i64::MAX), actor.tenant(), rows(limit));
        let (who, action, object) = (
            word(filter.actor.as_ref()),
            word(filter.action.as_ref()),
            word(filter.object.as_ref()),
        );
        let params: [&dyn Param; 6] = [&before, &tenant, &who, &action, &object, &count];
        let found = self.ask(query!("admin/audit"), &params).await?;
        let items: Vec<AuditEntry> = found
            .iter()
            .map(|row| AuditEntry {
                id: row.get("id"),
                at: row.get::<_, Moment>("at").0,
                actor: row.get("actor"),
                tenant: row.get("tenant"),
                action: row.get("action"),
                object: row.get("object"),
                detail: serde_json::from_str(row.get("detail")).unwrap_or_default(),
                outcome: row.get("outcome"),
            })
            .collect();
        Ok(Page::up_to(limit, items, |it| it.id.to_string()))
    }
}
