//! Events that endpoints of tenants never got: found and queued by operators.

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, EventFilter, UnsentEvents, UnsentPage, UnsentWindow,
        check_endpoint_tenant, endpoint_object,
    },
    limits::{ENDPOINT_UNSENT_BATCH, ENDPOINT_UNSENT_VISITED},
    outbox::OutboxEvent,
    store::StoreError,
};
use rusqlite::params;
use serde_json::json;

use super::{audited::AuditedTransaction, events, handle::SqliteAdmin, view::View};
use crate::{outbox::event, query};

#[async_trait]
impl UnsentEvents for SqliteAdmin {
    async fn unsent_events(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        window: &UnsentWindow,
    ) -> Result<UnsentPage, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (tenant, id, window) = (tenant.to_owned(), id.to_owned(), *window);
        self.read(move |view| unsent(view, &tenant, &id, &window))
            .await
    }

    async fn queue_unsent(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        events: &[Arc<OutboxEvent>],
    ) -> Result<u64, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (actor, tenant, id) = (actor.clone(), tenant.to_owned(), id.to_owned());
        let events = events.to_vec();
        let queue = move |act: &AuditedTransaction<'_>| {
            let mut queued = 0;
            for event in &events {
                let event_id = event.event.id.to_string();
                let now = act.now.as_millis();
                let params = params![tenant, id, event.position, event_id, now];
                queued += act.execute(query!("endpoint/queue_unsent"), params)?;
            }
            if queued > 0 {
                let detail = json!({"tenant": tenant, "count": queued});
                let object = endpoint_object(&id);
                act.note(&actor, "replay-missing", &object, &detail, "done")?;
            }
            Ok(queued as u64)
        };
        self.change(queue).await
    }
}

fn unsent(
    view: &View<'_>,
    tenant: &str,
    id: &str,
    window: &UnsentWindow,
) -> Result<UnsentPage, AdminError> {
    let filter = EventFilter {
        since: Some(window.since),
        until: Some(window.until),
        after: window.after,
        ..EventFilter::default()
    };
    let (low, high) = events::window(view, &filter)?;
    let (mut page, mut visited) = (UnsentPage::default(), 0);
    let mut unreadable: Option<StoreError> = None;
    let params = params![tenant, id, low, high];
    view.visit(query!("endpoint/unsent"), params, |row| {
        visited += 1;
        let created_at: i64 = row.get("created_at")?;
        let created_at = Timestamp::from_millis(created_at);
        let is_unsent: bool = row.get("is_unsent")?;
        if is_unsent && created_at >= window.since && created_at < window.until {
            match event(row, view.keyring) {
                Ok(event) => page.events.push(event),
                Err(error) => {
                    unreadable = Some(error);
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        let is_full = page.events.len() >= ENDPOINT_UNSENT_BATCH;
        if is_full || visited >= ENDPOINT_UNSENT_VISITED {
            page.next = Some(row.get("id")?);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match unreadable {
        Some(error) => Err(error.into()),
        None => Ok(page),
    }
}
