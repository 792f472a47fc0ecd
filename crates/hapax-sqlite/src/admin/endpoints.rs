//! Endpoints of tenants: created, listed, changed and deleted by operators, and their deliveries. Each
//! statement selects by the tenant.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Cursor, EndpointAction, EndpointAdmin, EndpointDelivery,
        EndpointDeliveryFilter, EndpointEdit, EndpointFilter, EndpointHealth, EndpointReplay,
        EndpointStatus, NewEndpoint, PAGE_MAX, Page, ReplayEnded, StoredEndpoint, TenantEndpoint,
        check_endpoint_tenant, endpoint_has_changed, endpoint_object, listed_tenant, slowed_reason,
        too_many_endpoints,
    },
    delivery::AttemptOutcome,
    endpoint::TOO_MANY_WAIT,
    keyring::Keyring,
    limits::{
        ENDPOINT_BACKLOG_COUNTED, ENDPOINT_HEALTH_ATTEMPTS, ENDPOINT_PURGE_ROWS, ENDPOINT_REPLAYED,
    },
    sink::PayloadMode,
};
use rusqlite::{Row, params};
use serde_json::{Value, json};

use super::{
    audited::AuditedTransaction,
    declared::{moment, optional_moment},
    handle::SqliteAdmin,
    view::View,
};
use crate::{
    endpoint::{bump, count, decrypted},
    error::store_error,
    query,
    value::rows,
};

#[async_trait]
impl EndpointAdmin for SqliteAdmin {
    async fn create_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        new: &NewEndpoint,
        per_tenant: u32,
    ) -> Result<TenantEndpoint, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let types = new.edit.check()?;
        let (actor, tenant, new) = (actor.clone(), tenant.to_owned(), new.clone());
        let create = move |act: &AuditedTransaction<'_>| {
            create(act, &actor, &tenant, &new, &types, per_tenant)
        };
        self.change_or_refuse(create).await
    }

    async fn endpoints(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<TenantEndpoint>, AdminError> {
        let tenant = listed_tenant(actor, filter.tenant.as_deref())?.map(str::to_owned);
        let limit = limit.clamp(1, PAGE_MAX);
        let (after, filter) = (after.unwrap_or_default().to_owned(), filter.clone());
        let list = move |view: &View<'_>| {
            let state = filter.state.map(EndpointStatus::as_str);
            let params = params![after, tenant, state, filter.text, rows(limit)];
            view.list(query!("endpoint/list"), params, stored)
        };
        let found = self.read(list).await?;
        let items: Vec<_> = found.into_iter().map(|it| it.endpoint).collect();
        let next = items.last().filter(|_| items.len() == limit);
        let next = next.map(|it| it.id.clone());
        Ok(Page { items, next })
    }

    async fn endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<StoredEndpoint, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        self.read(move |view| find(view, &tenant, &id)).await
    }

    async fn change_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        version: i64,
        action: EndpointAction,
        edit: &EndpointEdit,
    ) -> Result<TenantEndpoint, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let types = edit.check()?;
        let (actor, tenant, id) = (actor.clone(), tenant.to_owned(), id.to_owned());
        let edit = edit.clone();
        let change = move |act: &AuditedTransaction<'_>| {
            if action == EndpointAction::Enable {
                // It is rolled back if the endpoint belongs to another tenant.
                let params = params![id, rows(ENDPOINT_REPLAYED), act.now.as_millis()];
                act.execute(query!("endpoint/release"), params)?;
            }
            let next = act.with(|conn| bump(conn).map_err(store_error))?;
            let params = params![
                tenant,
                id,
                version,
                next,
                edit.url,
                edit.description,
                json!(types).to_string(),
                edit.filter,
                json!(edit.headers).to_string(),
                edit.sealed,
                edit.previous_until.map(Timestamp::as_millis),
                edit.disabled_reason,
                action == EndpointAction::Enable,
                actor.name,
                act.now.as_millis(),
                action == EndpointAction::Disable,
                edit.payload.as_str(),
                edit.mapping,
            ];
            let changed = act.first(query!("endpoint/change"), params, stored)?;
            let Some(changed) = changed else {
                let found = find(act, &tenant, &id)?;
                return Err(endpoint_has_changed(&id, found.endpoint.version));
            };
            let changed = changed.endpoint;
            let detail = json!({"tenant": tenant, "version": changed.version});
            let object = endpoint_object(&id);
            act.note(&actor, action.as_str(), &object, &detail, "done")?;
            Ok(changed)
        };
        self.change(change).await
    }

    async fn delete_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<(), AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (actor, tenant, id) = (actor.clone(), tenant.to_owned(), id.to_owned());
        let delete = move |act: &AuditedTransaction<'_>| {
            let version = act.with(|conn| bump(conn).map_err(store_error))?;
            let params = params![tenant, id, version, actor.name, act.now.as_millis()];
            let deleted = act.first(query!("endpoint/delete"), params, |_| Ok(()))?;
            if deleted.is_none() {
                return Err(AdminError::not_found(endpoint_object(&id)));
            }
            // A relay deletes the rest.
            let params = params![tenant, id, rows(ENDPOINT_PURGE_ROWS)];
            act.execute(query!("endpoint/delete_deliveries"), params)?;
            let detail = json!({"tenant": tenant});
            act.note(&actor, "delete", &endpoint_object(&id), &detail, "done")
        };
        self.change(delete).await
    }

    async fn endpoint_deliveries(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        filter: &EndpointDeliveryFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<EndpointDelivery>, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let limit = limit.clamp(1, PAGE_MAX);
        let (before, tie) = Cursor::of(before, None)?.millis();
        let (tenant, id, filter) = (tenant.to_owned(), id.to_owned(), filter.clone());
        let list = move |view: &View<'_>| {
            find(view, &tenant, &id)?;
            let params = params![
                tenant,
                id,
                filter.failed.map(outcome_word),
                filter.event_id.map(|it| it.to_string()),
                filter.since.map(Timestamp::as_millis),
                before,
                tie,
                rows(limit),
            ];
            let keyring = view.keyring;
            view.list(query!("endpoint/attempts"), params, |row| {
                delivery(row, &id, keyring)
            })
        };
        let found = self.read(list).await?;
        let oldest = found.last().filter(|_| found.len() == limit);
        let next = oldest.map(|(row, it)| Cursor::at(it.started_at, *row).to_string());
        let items = found.into_iter().map(|(_, it)| it).collect();
        Ok(Page { items, next })
    }

    async fn endpoint_health(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        since: Timestamp,
    ) -> Result<EndpointHealth, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        let read = move |view: &View<'_>| {
            find(view, &tenant, &id)?;
            let params = params![
                tenant,
                id,
                since.as_millis(),
                rows(ENDPOINT_HEALTH_ATTEMPTS),
                rows(ENDPOINT_BACKLOG_COUNTED),
            ];
            view.first(query!("endpoint/health"), params, health)
        };
        let health = self.read(read).await?;
        Ok(health.unwrap_or_default().with_rate())
    }

    async fn replay_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        replay: &EndpointReplay,
    ) -> Result<u64, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let (actor, tenant, id) = (actor.clone(), tenant.to_owned(), id.to_owned());
        let replay = *replay;
        let replay = move |act: &AuditedTransaction<'_>| {
            find(act, &tenant, &id)?;
            let (count, detail) = replayed(act, &tenant, &id, replay)?;
            act.note(&actor, "replay", &endpoint_object(&id), &detail, "done")?;
            Ok(count)
        };
        self.change(replay).await
    }
}

/// Creates an endpoint. The inner result is the refusal, whose line is committed.
fn create(
    act: &AuditedTransaction<'_>,
    actor: &Actor,
    tenant: &str,
    new: &NewEndpoint,
    types: &[String],
    per_tenant: u32,
) -> Result<Result<TenantEndpoint, AdminError>, AdminError> {
    let object = endpoint_object(&new.id);
    let refused = |error: AdminError| {
        let detail = json!({"why": error.to_string()});
        act.note(actor, "create", &object, &detail, "refused")?;
        Ok(Err(error))
    };
    let version = act.with(|conn| bump(conn).map_err(store_error))?;
    let number = act.first(query!("endpoint/count"), [tenant], |row| {
        row.get::<_, i64>("number")
    })?;
    if number.unwrap_or(0) >= i64::from(per_tenant) {
        return refused(too_many_endpoints(tenant, per_tenant));
    }
    let edit = &new.edit;
    let params = params![
        new.id,
        tenant,
        edit.url,
        edit.description,
        json!(types).to_string(),
        edit.filter,
        json!(edit.headers).to_string(),
        edit.sealed,
        edit.previous_until.map(Timestamp::as_millis),
        edit.disabled_reason,
        act.now.as_millis(),
        actor.name,
        version,
        edit.payload.as_str(),
        edit.mapping,
    ];
    let created = act.first(query!("endpoint/create"), params, stored)?;
    let Some(created) = created else {
        return refused(AdminError::conflict(format!("{object} already exists")));
    };
    let created = created.endpoint;
    let detail = json!({"tenant": tenant, "types": created.types});
    act.note(actor, "create", &object, &detail, "done")?;
    Ok(Ok(created))
}

/// Makes deliveries due. Returns their number and the detail for the audit log.
fn replayed(
    act: &AuditedTransaction<'_>,
    tenant: &str,
    id: &str,
    replay: EndpointReplay,
) -> Result<(u64, Value), AdminError> {
    let now = act.now.as_millis();
    match replay {
        EndpointReplay::Event(event) => {
            let event = event.to_string();
            let params = params![tenant, id, event, now];
            let mut count = act.execute(query!("endpoint/replay_event"), params)?;
            if count == 0 {
                count = act.execute(query!("endpoint/replay_delivered"), params)?;
            }
            if count == 0 {
                let what = format!("delivery of event {event} to {}", endpoint_object(id));
                return Err(AdminError::not_found(what));
            }
            Ok((count as u64, json!({"tenant": tenant, "event_id": event})))
        }
        EndpointReplay::FailedSince(since) => {
            replay_ended(act, tenant, id, ReplayEnded::since(since))
        }
        EndpointReplay::Ended(ended) => replay_ended(act, tenant, id, ended),
    }
}

/// Makes failed deliveries due. Returns their number and the detail for the audit log.
fn replay_ended(
    act: &AuditedTransaction<'_>,
    tenant: &str,
    id: &str,
    ended: ReplayEnded,
) -> Result<(u64, Value), AdminError> {
    let params = params![
        tenant,
        id,
        ended.since.as_millis(),
        rows(ENDPOINT_REPLAYED),
        act.now.as_millis(),
        ended.until.map(Timestamp::as_millis),
        ended.dropped,
        TOO_MANY_WAIT,
    ];
    let count = act.execute(query!("endpoint/replay_failed"), params)?;
    let detail = json!({
        "tenant": tenant,
        "since": ended.since,
        "until": ended.until,
        "dropped": ended.dropped,
        "count": count,
    });
    Ok((count as u64, detail))
}

fn find(view: &View<'_>, tenant: &str, id: &str) -> Result<StoredEndpoint, AdminError> {
    let found = view.first(query!("endpoint/show"), [tenant, id], stored)?;
    StoredEndpoint::present(found, id)
}

/// The word of the filter for failed attempts, or for the others.
fn outcome_word(is_failed: bool) -> &'static str {
    if is_failed { "failed" } else { "delivered" }
}

pub(super) fn health(row: &Row<'_>) -> rusqlite::Result<EndpointHealth> {
    let p95_ms: Option<i64> = row.get("p95_ms")?;
    Ok(EndpointHealth {
        attempts: count(row, "attempts")?,
        delivered: count(row, "delivered")?,
        success_rate: None,
        p95_ms: p95_ms.and_then(|it| u64::try_from(it).ok()),
        waiting: count(row, "waiting")?,
        failed: count(row, "failed")?,
        waiting_since: optional_moment(row, "waiting_since")?,
    })
}

/// An attempt with its number in the log.
fn delivery(
    row: &Row<'_>,
    endpoint: &str,
    keyring: &Keyring,
) -> rusqlite::Result<(i64, EndpointDelivery)> {
    let event_id: String = row.get("event_id")?;
    let outcome: String = row.get("outcome")?;
    let (request, response) = decrypted(row, endpoint, &event_id, keyring)?;
    let mut delivery = EndpointDelivery {
        event_id,
        kind: row.get("type")?,
        state: row.get("state")?,
        next_at: optional_moment(row, "next_at")?,
        attempt: row.get("number")?,
        started_at: moment(row, "started_at")?,
        duration: Duration::from_millis(count(row, "duration_ms")?),
        outcome: AttemptOutcome::parse(&outcome).unwrap_or(AttemptOutcome::Interrupted),
        status: row.get("status")?,
        error: row.get("error")?,
        request_headers: BTreeMap::new(),
        request_body: None,
        response: None,
    };
    delivery.set_exchange(&request, &response);
    Ok((row.get("id")?, delivery))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredEndpoint> {
    let strings = |column: &str| -> rusqlite::Result<Vec<String>> {
        let json: String = row.get(column)?;
        Ok(serde_json::from_str(&json).unwrap_or_default())
    };
    let disabled_reason: Option<String> = row.get("disabled_reason")?;
    let last_error: Option<String> = row.get("last_error")?;
    let failures: u32 = row.get("failures")?;
    let slowed_until = optional_moment(row, "slow_until")?.filter(|_| disabled_reason.is_none());
    let payload: String = row.get("payload_mode")?;
    let endpoint = TenantEndpoint {
        id: row.get("id")?,
        tenant: row.get("tenant")?,
        url: row.get("url")?,
        description: row.get("description")?,
        types: strings("types")?,
        filter: row.get("filter")?,
        headers: strings("headers")?,
        payload: PayloadMode::parse(&payload).unwrap_or_default(),
        mapping: row.get("mapping")?,
        enabled: disabled_reason.is_none(),
        state: EndpointStatus::of(disabled_reason.is_some(), slowed_until.is_some()),
        slowed_reason: slowed_until.map(|_| slowed_reason(failures, last_error.as_deref())),
        slowed_until,
        next_probe_at: optional_moment(row, "probe_at")?,
        probes: row.get("probes")?,
        disabled_reason,
        disabled_at: optional_moment(row, "disabled_at")?,
        failures,
        failing_since: optional_moment(row, "failing_since")?,
        previous_secret_until: optional_moment(row, "previous_until")?,
        created_at: moment(row, "created_at")?,
        created_by: row.get("created_by")?,
        changed_at: moment(row, "changed_at")?,
        changed_by: row.get("changed_by")?,
        version: row.get("version")?,
    };
    Ok(StoredEndpoint {
        endpoint,
        sealed: row.get("sealed")?,
    })
}
