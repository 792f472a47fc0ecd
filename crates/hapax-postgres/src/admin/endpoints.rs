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
    limits::{
        ENDPOINT_BACKLOG_COUNTED, ENDPOINT_HEALTH_ATTEMPTS, ENDPOINT_PURGE_ROWS, ENDPOINT_REPLAYED,
    },
    sink::PayloadMode,
};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{audited::AuditedTransaction, declared::moment};
use crate::{
    delivery::settle::text,
    endpoint::{bumped, decrypted},
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl EndpointAdmin for Postgres {
    async fn create_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        new: &NewEndpoint,
        per_tenant: u32,
    ) -> Result<TenantEndpoint, AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let columns = Columns::of(&new.edit)?;
        let object = endpoint_object(&new.id);
        let mut act = AuditedTransaction::begin(self).await?;
        // The lock of the version makes the number of endpoints exact.
        let version = bumped(&act.ask(query!("endpoint/bump"), &[]).await?)?;
        let counted = act.ask(query!("endpoint/count"), &[&tenant]).await?;
        let number: i64 = counted.first().map_or(0, |row| row.get("number"));
        if number >= i64::from(per_tenant) {
            return refused(act, actor, &object, too_many_endpoints(tenant, per_tenant)).await;
        }
        let (id, by, time) = (text(&new.id), text(&actor.name), self.time());
        let sealed = new.edit.sealed.as_deref();
        let params: [&dyn Param; 15] = [
            &id,
            &tenant,
            &columns.url,
            &columns.description,
            &columns.types,
            &columns.filter,
            &columns.headers,
            &sealed,
            &columns.previous_until,
            &columns.disabled_reason,
            &time,
            &by,
            &version,
            &columns.payload,
            &columns.mapping,
        ];
        let created = act.ask(query!("endpoint/create"), &params).await?;
        let Some(row) = created.first() else {
            let error = AdminError::conflict(format!("{object} already exists"));
            return refused(act, actor, &object, error).await;
        };
        let created = stored(row).endpoint;
        let detail = json!({"tenant": tenant, "types": created.types});
        act.note(actor, "create", &object, &detail, "done").await?;
        act.commit().await?;
        Ok(created)
    }

    async fn endpoints(
        &self,
        actor: &Actor,
        filter: &EndpointFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<TenantEndpoint>, AdminError> {
        let tenant = listed_tenant(actor, filter.tenant.as_deref())?;
        let limit = limit.clamp(1, PAGE_MAX);
        let (after, count) = (after.map(text).unwrap_or_default(), rows(limit));
        let state = filter.state.map(EndpointStatus::as_str);
        let part = filter.text.as_deref().map(text);
        let params: [&dyn Param; 5] = [&after, &tenant, &state, &part, &count];
        let found = self.ask(query!("endpoint/list"), &params).await?;
        let items: Vec<_> = found.iter().map(|row| stored(row).endpoint).collect();
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
        let params: [&dyn Param; 2] = [&tenant, &text(id)];
        let found = self.ask(query!("endpoint/show"), &params).await?;
        StoredEndpoint::present(found.first().map(stored), id)
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
        let columns = Columns::of(edit)?;
        let mut act = AuditedTransaction::begin(self).await?;
        let next = bumped(&act.ask(query!("endpoint/bump"), &[]).await?)?;
        let (shown_id, by, time) = (text(id), text(&actor.name), self.time());
        if action == EndpointAction::Enable {
            // It is rolled back if the endpoint belongs to another tenant.
            let params: [&dyn Param; 3] = [&shown_id, &rows(ENDPOINT_REPLAYED), &time];
            act.ask(query!("endpoint/release"), &params).await?;
        }
        let (sealed, is_reset) = (edit.sealed.as_deref(), action == EndpointAction::Enable);
        let is_by_hand = action == EndpointAction::Disable;
        let params: [&dyn Param; 18] = [
            &tenant,
            &shown_id,
            &version,
            &next,
            &columns.url,
            &columns.description,
            &columns.types,
            &columns.filter,
            &columns.headers,
            &sealed,
            &columns.previous_until,
            &columns.disabled_reason,
            &is_reset,
            &by,
            &time,
            &is_by_hand,
            &columns.payload,
            &columns.mapping,
        ];
        let changed = act.ask(query!("endpoint/change"), &params).await?;
        let Some(row) = changed.first() else {
            let params: [&dyn Param; 2] = [&tenant, &shown_id];
            let found = act.ask(query!("endpoint/show"), &params).await?;
            act.rollback().await;
            let found = StoredEndpoint::present(found.first().map(stored), id)?;
            return Err(endpoint_has_changed(id, found.endpoint.version));
        };
        let changed = stored(row).endpoint;
        let detail = json!({"tenant": tenant, "version": changed.version});
        let object = endpoint_object(id);
        act.note(actor, action.as_str(), &object, &detail, "done")
            .await?;
        act.commit().await?;
        Ok(changed)
    }

    async fn delete_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<(), AdminError> {
        check_endpoint_tenant(actor, tenant)?;
        let mut act = AuditedTransaction::begin(self).await?;
        let version = bumped(&act.ask(query!("endpoint/bump"), &[]).await?)?;
        let (shown_id, by, time) = (text(id), text(&actor.name), self.time());
        let params: [&dyn Param; 5] = [&tenant, &shown_id, &version, &by, &time];
        let deleted = act.ask(query!("endpoint/delete"), &params).await?;
        if deleted.is_empty() {
            act.rollback().await;
            return Err(AdminError::not_found(endpoint_object(id)));
        }
        // A relay deletes the rest. The lock of the version is held until this commits.
        let params: [&dyn Param; 3] = [&tenant, &shown_id, &rows(ENDPOINT_PURGE_ROWS)];
        act.ask(query!("endpoint/delete_deliveries"), &params)
            .await?;
        let detail = json!({"tenant": tenant});
        act.note(actor, "delete", &endpoint_object(id), &detail, "done")
            .await?;
        Ok(act.commit().await?)
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
        self.endpoint(actor, tenant, id).await?;
        let limit = limit.clamp(1, PAGE_MAX);
        let (millis, tie) = Cursor::of(before, None)?.millis();
        let outcome = filter.failed.map(outcome_word);
        let event = filter.event_id.map(|it| it.to_string());
        let since = filter.since.map(Moment);
        let before = Moment(Timestamp::from_millis(millis));
        let params: [&dyn Param; 8] = [
            &tenant,
            &id,
            &outcome,
            &event,
            &since,
            &before,
            &tie,
            &rows(limit),
        ];
        let found = self.ask(query!("endpoint/attempts"), &params).await?;
        let last = found.last().filter(|_| found.len() == limit);
        let next = last.map(|row| {
            let at = row.get::<_, Moment>("started_at").0;
            Cursor::at(at, row.get("id")).to_string()
        });
        let items = found.iter().map(|row| self.delivery(row, id)).collect();
        Ok(Page { items, next })
    }

    async fn endpoint_health(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        since: Timestamp,
    ) -> Result<EndpointHealth, AdminError> {
        self.endpoint(actor, tenant, id).await?;
        let (attempts, queued) = (
            rows(ENDPOINT_HEALTH_ATTEMPTS),
            rows(ENDPOINT_BACKLOG_COUNTED),
        );
        let since = Moment(since.max(Timestamp::from_millis(0)));
        let params: [&dyn Param; 5] = [&tenant, &id, &since, &attempts, &queued];
        let found = self.ask(query!("endpoint/health"), &params).await?;
        let health = found.first().map(|row| EndpointHealth {
            attempts: count(row, "attempts"),
            delivered: count(row, "delivered"),
            success_rate: None,
            p95_ms: row
                .get::<_, Option<i64>>("p95_ms")
                .and_then(|it| u64::try_from(it).ok()),
            waiting: count(row, "waiting"),
            failed: count(row, "failed"),
            waiting_since: moment(row, "waiting_since"),
        });
        Ok(health.unwrap_or_default().with_rate())
    }

    async fn replay_endpoint(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        replay: &EndpointReplay,
    ) -> Result<u64, AdminError> {
        self.endpoint(actor, tenant, id).await?;
        let mut act = AuditedTransaction::begin(self).await?;
        let (count, detail) = match replay {
            EndpointReplay::Event(event) => {
                let event = event.to_string();
                let params: [&dyn Param; 4] = [&tenant, &id, &event, &self.time()];
                let found = act.ask(query!("endpoint/replay_event"), &params).await?;
                let mut count = replayed(&found);
                if count == 0 {
                    let sql = query!("endpoint/replay_delivered");
                    count = replayed(&act.ask(sql, &params).await?);
                }
                if count == 0 {
                    act.rollback().await;
                    let what = format!("delivery of event {event} to {}", endpoint_object(id));
                    return Err(AdminError::not_found(what));
                }
                (count, json!({"tenant": tenant, "event_id": event}))
            }
            EndpointReplay::FailedSince(since) => {
                let ended = ReplayEnded::since(*since);
                replay_ended(&mut act, tenant, id, &ended, self.time()).await?
            }
            EndpointReplay::Ended(ended) => {
                replay_ended(&mut act, tenant, id, ended, self.time()).await?
            }
        };
        act.note(actor, "replay", &endpoint_object(id), &detail, "done")
            .await?;
        act.commit().await?;
        Ok(count)
    }
}

impl Postgres {
    fn delivery(&self, row: &Row, endpoint: &str) -> EndpointDelivery {
        let event_id: String = row.get("event_id");
        let (request, response) = decrypted(row, endpoint, &event_id, self.keyring());
        let duration = u64::try_from(row.get::<_, i64>("duration_ms")).unwrap_or(0);
        let status: Option<i16> = row.get("status");
        let mut delivery = EndpointDelivery {
            event_id,
            kind: row.get("type"),
            state: row.get("state"),
            next_at: moment(row, "next_at"),
            attempt: row.get::<_, i32>("number").cast_unsigned(),
            started_at: row.get::<_, Moment>("started_at").0,
            duration: Duration::from_millis(duration),
            outcome: AttemptOutcome::parse(row.get("outcome"))
                .unwrap_or(AttemptOutcome::Interrupted),
            status: status.and_then(|it| u16::try_from(it).ok()),
            error: row.get("error"),
            request_headers: BTreeMap::new(),
            request_body: None,
            response: None,
        };
        delivery.set_exchange(&request, &response);
        delivery
    }
}

/// The columns of an edit.
struct Columns {
    url: String,
    description: String,
    types: String,
    filter: Option<String>,
    headers: String,
    payload: &'static str,
    mapping: Option<String>,
    previous_until: Option<Moment>,
    disabled_reason: Option<String>,
}

impl Columns {
    fn of(edit: &EndpointEdit) -> Result<Self, AdminError> {
        let types = edit.check()?;
        Ok(Self {
            url: text(&edit.url),
            description: text(&edit.description),
            types: json!(types).to_string(),
            filter: edit.filter.as_deref().map(text),
            headers: json!(edit.headers).to_string(),
            payload: edit.payload.as_str(),
            mapping: edit.mapping.as_deref().map(text),
            previous_until: edit.previous_until.map(Moment),
            disabled_reason: edit.disabled_reason.as_deref().map(text),
        })
    }
}

/// Commits a refusal with its line in the audit log, and returns it.
async fn refused<T>(
    mut act: AuditedTransaction<'_>,
    actor: &Actor,
    object: &str,
    error: AdminError,
) -> Result<T, AdminError> {
    let detail = json!({"why": error.to_string()});
    act.note(actor, "create", object, &detail, "refused")
        .await?;
    act.commit().await?;
    Err(error)
}

/// The word of the filter for failed attempts, or for the others.
fn outcome_word(is_failed: bool) -> &'static str {
    if is_failed { "failed" } else { "delivered" }
}

/// Makes failed deliveries due. Returns their number and the detail for the audit log.
async fn replay_ended(
    act: &mut AuditedTransaction<'_>,
    tenant: &str,
    id: &str,
    ended: &ReplayEnded,
    time: Option<Moment>,
) -> Result<(u64, Value), AdminError> {
    let since = Moment(ended.since.max(Timestamp::from_millis(0)));
    let until = ended
        .until
        .map(|it| Moment(it.max(Timestamp::from_millis(0))));
    let limit = rows(ENDPOINT_REPLAYED);
    // `Param` has no type for a boolean that may be null.
    let dropped = ended.dropped.map(|it| if it { "true" } else { "false" });
    let params: [&dyn Param; 8] = [
        &tenant,
        &id,
        &since,
        &limit,
        &time,
        &until,
        &dropped,
        &TOO_MANY_WAIT,
    ];
    let found = act.ask(query!("endpoint/replay_failed"), &params).await?;
    let count = replayed(&found);
    let detail = json!({
        "tenant": tenant,
        "since": ended.since,
        "until": ended.until,
        "dropped": ended.dropped,
        "count": count,
    });
    Ok((count, detail))
}

fn replayed(found: &[Row]) -> u64 {
    found.first().map_or(0, |row| count(row, "replayed"))
}

fn count(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

fn stored(row: &Row) -> StoredEndpoint {
    let disabled_reason: Option<String> = row.get("disabled_reason");
    let failures = row.get::<_, i32>("failures").cast_unsigned();
    let slowed_until = moment(row, "slow_until").filter(|_| disabled_reason.is_none());
    let strings = |column: &str| serde_json::from_str(row.get(column)).unwrap_or_default();
    let endpoint = TenantEndpoint {
        id: row.get("id"),
        tenant: row.get("tenant"),
        url: row.get("url"),
        description: row.get("description"),
        types: strings("types"),
        filter: row.get("filter"),
        headers: strings("headers"),
        payload: PayloadMode::parse(row.get("payload_mode")).unwrap_or_default(),
        mapping: row.get("mapping"),
        enabled: disabled_reason.is_none(),
        state: EndpointStatus::of(disabled_reason.is_some(), slowed_until.is_some()),
        slowed_reason: slowed_until.map(|_| slowed_reason(failures, row.get("last_error"))),
        slowed_until,
        next_probe_at: moment(row, "probe_at"),
        probes: row.get::<_, i32>("probes").cast_unsigned(),
        disabled_reason,
        disabled_at: moment(row, "disabled_at"),
        failures,
        failing_since: moment(row, "failing_since"),
        previous_secret_until: moment(row, "previous_until"),
        created_at: row.get::<_, Moment>("created_at").0,
        created_by: row.get("created_by"),
        changed_at: row.get::<_, Moment>("changed_at").0,
        changed_by: row.get("changed_by"),
        version: row.get("version"),
    };
    StoredEndpoint {
        endpoint,
        sealed: row.get("sealed"),
    }
}
