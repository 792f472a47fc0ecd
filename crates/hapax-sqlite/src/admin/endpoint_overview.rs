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
use rusqlite::{Row, params};

use super::{
    declared::{moment, optional_moment},
    endpoints::health,
    handle::SqliteAdmin,
    view::View,
};
use crate::{endpoint::count, query, value::rows};

#[async_trait]
impl EndpointOverview for SqliteAdmin {
    async fn endpoint_statuses(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        since: Timestamp,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedEndpoint>, AdminError> {
        let tenant = listed_tenant(actor, filter.tenant.as_deref())?.map(str::to_owned);
        let limit = limit.clamp(1, PAGE_MAX);
        let (after, filter) = (after.unwrap_or_default().to_owned(), filter.clone());
        let list = move |view: &View<'_>| {
            let state = filter.state.map(EndpointStatus::as_str);
            let params = params![after, tenant, state, filter.text, rows(limit)];
            let mut found = view.list(query!("endpoint/statuses"), params, status)?;
            for listed in &mut found {
                let params = params![
                    listed.tenant,
                    listed.id,
                    since.as_millis(),
                    rows(ENDPOINT_STATUS_ATTEMPTS),
                    rows(ENDPOINT_STATUS_COUNTED),
                ];
                let read = view.first(query!("endpoint/health"), params, health)?;
                listed.health = read.unwrap_or_default().with_rate();
            }
            Ok(found)
        };
        let items = self.read(list).await?;
        Ok(Page::up_to(limit, items, |it| it.id.clone()))
    }

    async fn endpoint_tenant(&self, actor: &Actor, id: &str) -> Result<String, AdminError> {
        let (own, id) = (actor.tenant().map(str::to_owned), id.to_owned());
        let find = move |view: &View<'_>| {
            let params = params![id, own];
            let found = view.first(query!("endpoint/tenant"), params, |row| row.get("tenant"))?;
            found.ok_or_else(|| AdminError::not_found(endpoint_object(&id)))
        };
        self.read(find).await
    }

    async fn endpoint_waiting(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        limit: usize,
    ) -> Result<Vec<WaitingDelivery>, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        let list = move |view: &View<'_>| {
            let params = params![tenant, id, rows(limit.clamp(1, PAGE_MAX))];
            view.list(query!("endpoint/waiting"), params, waiting)
        };
        self.read(list).await
    }

    async fn endpoint_traces(
        &self,
        actor: &Actor,
        tenant: &str,
        event: EventId,
    ) -> Result<Vec<EndpointTrace>, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (tenant, event) = (tenant.to_owned(), event.to_string());
        let list = move |view: &View<'_>| {
            let params = params![tenant, event, rows(ENDPOINT_TRACED), rows(ENDPOINT_TRACES)];
            view.list(query!("endpoint/traces"), params, trace)
        };
        self.read(list).await
    }

    async fn endpoint_attention(&self, actor: &Actor) -> Result<EndpointAttention, AdminError> {
        let own = actor.tenant().map(str::to_owned);
        let read = move |view: &View<'_>| {
            let params = params![own, rows(ENDPOINT_ATTENTION)];
            let disabled = view.list(query!("endpoint/disabled"), params, disabled)?;
            let mut attention = EndpointAttention {
                disabled: disabled.first().map_or(0, |(number, _)| *number),
                newest_disabled: disabled.into_iter().map(|(_, it)| it).collect(),
                backlogs: Vec::new(),
            };
            if own.is_none() {
                let params = params![
                    rows(ENDPOINT_BACKLOGS_SCAN),
                    rows(ENDPOINT_STATUS_COUNTED),
                    rows(ENDPOINT_BACKLOGS),
                ];
                attention.backlogs = view.list(query!("endpoint/backlogs"), params, backlog)?;
            }
            Ok(attention)
        };
        self.read(read).await
    }
}

/// An endpoint without its health.
fn status(row: &Row<'_>) -> rusqlite::Result<ListedEndpoint> {
    let disabled_reason: Option<String> = row.get("disabled_reason")?;
    let failures: u32 = row.get("failures")?;
    let last_error: Option<String> = row.get("last_error")?;
    let is_slowed: bool = row.get("is_slowed")?;
    Ok(ListedEndpoint {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        url: row.get("url")?,
        description: row.get("description")?,
        disabled_reason,
        next_probe_at: optional_moment(row, "probe_at")?,
        slowed_reason: is_slowed.then(|| slowed_reason(failures, last_error.as_deref())),
        failures,
        health: EndpointHealth::default(),
    })
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<WaitingDelivery> {
    Ok(WaitingDelivery {
        event_id: row.get("event_id")?,
        kind: row.get("type")?,
        attempts: row.get("attempt")?,
        next_at: moment(row, "next_at")?,
        created_at: moment(row, "created_at")?,
        last_error: row.get("last_error")?,
    })
}

fn trace(row: &Row<'_>) -> rusqlite::Result<EndpointTrace> {
    Ok(EndpointTrace {
        endpoint: row.get("id")?,
        is_disabled: row.get("is_disabled")?,
        state: row.get("state")?,
        attempts: row.get("attempts")?,
        next_at: optional_moment(row, "next_at")?,
        tried_at: optional_moment(row, "started_at")?,
        status: row.get("status")?,
        error: row.get("error")?,
    })
}

/// A disabled endpoint, with the number of all.
fn disabled(row: &Row<'_>) -> rusqlite::Result<(u64, DisabledEndpoint)> {
    let disabled = DisabledEndpoint {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        reason: row.get("disabled_reason")?,
        at: moment(row, "disabled_at")?,
    };
    Ok((count(row, "number")?, disabled))
}

fn backlog(row: &Row<'_>) -> rusqlite::Result<WaitingEndpoint> {
    Ok(WaitingEndpoint {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        waiting: count(row, "waiting")?,
    })
}
