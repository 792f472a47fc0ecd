//! Events that endpoints of tenants never got: found and queued by operators.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, EventFilter, UnsentEvents, UnsentPage, UnsentWindow,
        check_endpoint_tenant, endpoint_object,
    },
    limits::{ENDPOINT_UNSENT_BATCH, ENDPOINT_UNSENT_VISITED},
    outbox::OutboxEvent,
};
use serde_json::json;

use super::{audited::AuditedTransaction, events};
use crate::{
    delivery::settle::text,
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl UnsentEvents for Postgres {
    async fn unsent_events(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        window: &UnsentWindow,
    ) -> Result<UnsentPage, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let filter = EventFilter {
            since: Some(window.since),
            until: Some(window.until),
            after: window.after,
            ..EventFilter::default()
        };
        let (low, high) = events::window(self, &filter).await?;
        let (id, since) = (text(id), Moment(window.since));
        let until = Moment(window.until);
        let (visited, batch) = (rows(ENDPOINT_UNSENT_VISITED), rows(ENDPOINT_UNSENT_BATCH));
        let params: [&dyn Param; 8] = [&tenant, &id, &since, &until, &low, &high, &visited, &batch];
        let found = self.ask(query!("endpoint/unsent"), &params).await?;
        let until: Option<i64> = found.first().and_then(|row| row.get("until"));
        let listed = found
            .iter()
            .filter(|row| row.get::<_, Option<i64>>("id").is_some());
        let listed = listed.map(|row| outbox::event(row, self.keyring()));
        let events: Vec<Arc<OutboxEvent>> = listed.collect::<Result<_, _>>()?;
        // A full batch ends before what was visited.
        let last = events.last().map(|event| event.position);
        let next = last.filter(|_| events.len() >= ENDPOINT_UNSENT_BATCH);
        Ok(UnsentPage {
            next: next.or(until),
            events,
        })
    }

    async fn queue_unsent(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        events: &[Arc<OutboxEvent>],
    ) -> Result<u64, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let positions: Vec<i64> = events.iter().map(|it| it.position).collect();
        let ids: Vec<String> = events.iter().map(|it| it.event.id.to_string()).collect();
        let (id, time) = (text(id), self.time());
        let mut act = AuditedTransaction::begin(self).await?;
        let params: [&dyn Param; 5] = [&tenant, &id, &positions, &ids, &time];
        let queued = act.ask(query!("endpoint/queue_unsent"), &params).await?;
        let queued = queued.first().map_or(0, |row| row.get::<_, i64>("queued"));
        if queued == 0 {
            act.rollback().await;
            return Ok(0);
        }
        let detail = json!({"tenant": tenant, "count": queued});
        let object = endpoint_object(&id);
        act.note(actor, "replay-missing", &object, &detail, "done")
            .await?;
        act.commit().await?;
        Ok(queued.unsigned_abs())
    }
}
