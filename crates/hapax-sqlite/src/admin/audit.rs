//! The audit log: which operator did what and when, and the outcome.

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, AuditAdmin, AuditEntry, AuditFilter, PAGE_MAX, Page, read_cursor,
};
use rusqlite::{Row, params};
use serde_json::Value;

use super::{declared::moment, handle::SqliteAdmin, view::View};
use crate::{query, value::rows};

#[async_trait]
impl AuditAdmin for SqliteAdmin {
    async fn record(
        &self,
        actor: &Actor,
        action: &str,
        object: &str,
        detail: &Value,
    ) -> Result<(), AdminError> {
        let (actor, detail) = (actor.clone(), detail.clone());
        let (action, object) = (action.to_owned(), object.to_owned());
        self.change(move |act| act.note(&actor, &action, &object, &detail, "done"))
            .await
    }

    async fn audit_log(
        &self,
        actor: &Actor,
        filter: &AuditFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<AuditEntry>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let before: Option<i64> = read_cursor(before, |text| text.parse().ok())?;
        let (tenant, filter) = (actor.tenant().map(str::to_owned), filter.clone());
        let list = move |view: &View<'_>| {
            let params = params![
                before.unwrap_or(i64::MAX),
                tenant,
                filter.actor,
                filter.action,
                filter.object,
                rows(limit),
            ];
            view.list(query!("admin/audit"), params, entry)
        };
        let items = self.read(list).await?;
        Ok(Page::up_to(limit, items, |it| it.id.to_string()))
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let detail: String = row.get("detail")?;
    Ok(AuditEntry {
        id: row.get("id")?,
        at: moment(row, "at")?,
        actor: row.get("actor")?,
        tenant: row.get("tenant")?,
        action: row.get("action")?,
        object: row.get("object")?,
        detail: serde_json::from_str(&detail).unwrap_or_default(),
        outcome: row.get("outcome")?,
    })
}
