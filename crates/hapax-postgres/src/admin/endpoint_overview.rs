//! Endpoints of all tenants, as operators see them. Every list is limited to the actor's tenant.

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, DisabledEndpoint, EndpointAttention, EndpointFilter, EndpointHealth,
        EndpointOverview, EndpointStatus, EndpointTrace, ListedEndpoint, PAGE_MAX, Page,
        WaitingDelivery, WaitingEndpoint, check_endpoint_tenant, endpoint_object, listed_tenant,
        slowed_reason,
    },
    event::EventId,
    limits::{
        ENDPOINT_ATTENTION, ENDPOINT_BACKLOGS, ENDPOINT_BACKLOGS_SCAN, ENDPOINT_STATUS_ATTEMPTS,
        ENDPOINT_STATUS_COUNTED, ENDPOINT_TRACED, ENDPOINT_TRACES,
    },
};
use tokio_postgres::Row;

use super::declared::moment;
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl EndpointOverview for Postgres {
    async fn endpoint_statuses(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        since: Timestamp,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedEndpoint>, AdminError> {
        let tenant = listed_tenant(actor, filter.tenant.as_deref())?;
        let limit = limit.clamp(1, PAGE_MAX);
        let (after, count) = (after.map(text).unwrap_or_default(), rows(limit));
        let state = filter.state.map(EndpointStatus::as_str);
        let part = filter.text.as_deref().map(text);
        let since = Moment(since.max(Timestamp::from_millis(0)));
        let (attempts, counted) = (
            rows(ENDPOINT_STATUS_ATTEMPTS),
            rows(ENDPOINT_STATUS_COUNTED),
        );
        let params: [&dyn Param; 8] = [
            &after, &tenant, &state, &part, &count, &since, &attempts, &counted,
        ];
        let found = self.ask(query!("endpoint/statuses"), &params).await?;
        let items = found.iter().map(status).collect();
        Ok(Page::up_to(limit, items, |it: &ListedEndpoint| {
            it.id.clone()
        }))
    }

    async fn endpoint_tenant(&self, actor: &Actor, id: &str) -> Result<String, AdminError> {
        let (shown_id, own) = (text(id), actor.tenant());
        let params: [&dyn Param; 2] = [&shown_id, &own];
        let found = self.ask(query!("endpoint/tenant"), &params).await?;
        let found = found.first().map(|row| row.get("tenant"));
        found.ok_or_else(|| AdminError::not_found(endpoint_object(id)))
    }

    async fn endpoint_waiting(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        limit: usize,
    ) -> Result<Vec<WaitingDelivery>, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (id, limit) = (text(id), rows(limit.clamp(1, PAGE_MAX)));
        let params: [&dyn Param; 3] = [&tenant, &id, &limit];
        let found = self.ask(query!("endpoint/waiting"), &params).await?;
        Ok(found.iter().map(waiting).collect())
    }

    async fn endpoint_traces(
        &self,
        actor: &Actor,
        tenant: &str,
        event: EventId,
    ) -> Result<Vec<EndpointTrace>, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let event = event.to_string();
        let (endpoints, limit) = (rows(ENDPOINT_TRACED), rows(ENDPOINT_TRACES));
        let params: [&dyn Param; 4] = [&tenant, &event, &endpoints, &limit];
        let found = self.ask(query!("endpoint/traces"), &params).await?;
        Ok(found.iter().map(trace).collect())
    }

    async fn endpoint_attention(&self, actor: &Actor) -> Result<EndpointAttention, AdminError> {
        let (own, limit) = (actor.tenant(), rows(ENDPOINT_ATTENTION));
        let params: [&dyn Param; 2] = [&own, &limit];
        let disabled = self.ask(query!("endpoint/disabled"), &params).await?;
        let mut attention = EndpointAttention {
            disabled: disabled.first().map_or(0, |row| count(row, "number")),
            newest_disabled: disabled.iter().map(disabled_endpoint).collect(),
            backlogs: Vec::new(),
        };
        if own.is_none() {
            let (endpoints, counted) =
                (rows(ENDPOINT_BACKLOGS_SCAN), rows(ENDPOINT_STATUS_COUNTED));
            let limit = rows(ENDPOINT_BACKLOGS);
            let params: [&dyn Param; 3] = [&endpoints, &counted, &limit];
            let found = self.ask(query!("endpoint/backlogs"), &params).await?;
            attention.backlogs = found.iter().map(backlog).collect();
        }
        Ok(attention)
    }
}

fn count(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

fn attempts(row: &Row, column: &str) -> u32 {
    row.get::<_, i32>(column).cast_unsigned()
}

fn status(row: &Row) -> ListedEndpoint {
    let p95_ms: Option<i64> = row.get("p95_ms");
    let health = EndpointHealth {
        attempts: count(row, "attempts"),
        delivered: count(row, "delivered"),
        p95_ms: p95_ms.and_then(|it| u64::try_from(it).ok()),
        waiting: count(row, "waiting"),
        failed: count(row, "failed"),
        waiting_since: moment(row, "waiting_since"),
        ..EndpointHealth::default()
    };
    let failures = attempts(row, "failures");
    let is_slowed: bool = row.get("is_slowed");
    ListedEndpoint {
        id: row.get("id"),
        tenant: row.get("tenant"),
        url: row.get("url"),
        description: row.get("description"),
        disabled_reason: row.get("disabled_reason"),
        next_probe_at: moment(row, "probe_at"),
        slowed_reason: is_slowed.then(|| slowed_reason(failures, row.get("last_error"))),
        failures,
        health: health.with_rate(),
    }
}

fn waiting(row: &Row) -> WaitingDelivery {
    WaitingDelivery {
        event_id: row.get("event_id"),
        kind: row.get("type"),
        attempts: attempts(row, "attempt"),
        next_at: row.get::<_, Moment>("next_at").0,
        created_at: row.get::<_, Moment>("created_at").0,
        last_error: row.get("last_error"),
    }
}

fn trace(row: &Row) -> EndpointTrace {
    let status: Option<i16> = row.get("status");
    EndpointTrace {
        endpoint: row.get("id"),
        is_disabled: row.get("is_disabled"),
        state: row.get("state"),
        attempts: attempts(row, "attempts"),
        next_at: moment(row, "next_at"),
        tried_at: moment(row, "started_at"),
        status: status.and_then(|it| u16::try_from(it).ok()),
        error: row.get("error"),
    }
}

fn disabled_endpoint(row: &Row) -> DisabledEndpoint {
    DisabledEndpoint {
        id: row.get("id"),
        tenant: row.get("tenant"),
        reason: row.get("disabled_reason"),
        at: row.get::<_, Moment>("disabled_at").0,
    }
}

fn backlog(row: &Row) -> WaitingEndpoint {
    WaitingEndpoint {
        id: row.get("id"),
        tenant: row.get("tenant"),
        waiting: count(row, "waiting"),
    }
}
