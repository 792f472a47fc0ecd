//! Polling endpoints: created, listed, given another token, and removed by operators.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, EventsOfType, NewPollingEndpoint, PAGE_MAX, Page, PollAdmin,
        PollingEndpoint, PollingLag, check_overlap, polling_object, too_many_tokens,
    },
    delivery::Start,
    limits::POLLING_LAG_READ,
    poll::TokenHash,
};
use rusqlite::{Row, params};
use serde_json::json;

use super::{
    audited::AuditedTransaction,
    declared::{moment, optional_moment},
    handle::SqliteAdmin,
    view::View,
};
use crate::{endpoint::count, error::store_error, poll::started, query, value::rows};

#[async_trait]
impl PollAdmin for SqliteAdmin {
    async fn create_polling_endpoint(
        &self,
        actor: &Actor,
        new: &NewPollingEndpoint,
    ) -> Result<PollingEndpoint, AdminError> {
        let types = new.check(actor)?;
        let (actor, new) = (actor.clone(), new.clone());
        self.change_or_refuse(move |act| create(act, &actor, &new, &types))
            .await
    }

    async fn polling_endpoints(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<PollingEndpoint>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let after = after.unwrap_or_default().to_owned();
        let tenant = actor.tenant().map(str::to_owned);
        let list = move |view: &View<'_>| {
            let params = params![after, tenant, rows(limit)];
            view.list(query!("poll/list"), params, shown)
        };
        let items = self.read(list).await?;
        Ok(Page::up_to(limit, items, |it| it.name.clone()))
    }

    async fn polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<PollingEndpoint, AdminError> {
        let (actor, name) = (actor.clone(), name.to_owned());
        self.read(move |view| find(view, &actor, &name)).await
    }

    async fn rotate_polling_token(
        &self,
        actor: &Actor,
        name: &str,
        token: &TokenHash,
        overlap: Duration,
    ) -> Result<PollingEndpoint, AdminError> {
        check_overlap(overlap)?;
        let (actor, name, token) = (actor.clone(), name.to_owned(), *token);
        self.change_or_refuse(move |act| rotate(act, &actor, &name, &token, overlap))
            .await
    }

    async fn seek_polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
        to: Start,
    ) -> Result<PollingEndpoint, AdminError> {
        let (actor, name) = (actor.clone(), name.to_owned());
        let seek = move |act: &AuditedTransaction<'_>| {
            let before = find(act, &actor, &name)?.position;
            let frontier = act.with(|conn| started(conn, to).map_err(store_error))?;
            let params = params![name, frontier, act.now.as_millis()];
            let moved = act.first(query!("poll/seek"), params, shown)?;
            let moved = PollingEndpoint::present(moved, &actor, &name)?;
            let detail = json!({"to": to, "from": before, "position": moved.position});
            act.note(&actor, "seek", &polling_object(&name), &detail, "done")?;
            Ok(moved)
        };
        self.change(seek).await
    }

    async fn polling_lag(&self, actor: &Actor, name: &str) -> Result<PollingLag, AdminError> {
        let (actor, name) = (actor.clone(), name.to_owned());
        let read = move |view: &View<'_>| {
            let endpoint = find(view, &actor, &name)?;
            let params = params![endpoint.position, endpoint.tenant, rows(POLLING_LAG_READ)];
            let found = view.list(query!("poll/lag"), params, counted)?;
            let looked = found.first().map_or(0, |(looked, _)| *looked);
            let of_types: Vec<_> = found.into_iter().filter_map(|(_, it)| it).collect();
            let is_all = looked < rows(POLLING_LAG_READ);
            Ok(PollingLag::of(&endpoint.types, &of_types, is_all))
        };
        self.read(read).await
    }

    async fn remove_polling_endpoint(&self, actor: &Actor, name: &str) -> Result<(), AdminError> {
        let (actor, name) = (actor.clone(), name.to_owned());
        let remove = move |act: &AuditedTransaction<'_>| {
            find(act, &actor, &name)?;
            act.execute(query!("poll/remove"), [&name])?;
            let object = polling_object(&name);
            act.note(&actor, "remove", &object, &json!({}), "done")
        };
        self.change(remove).await
    }
}

/// Creates an endpoint. The inner result is the refusal, whose line is committed.
fn create(
    act: &AuditedTransaction<'_>,
    actor: &Actor,
    new: &NewPollingEndpoint,
    types: &[String],
) -> Result<Result<PollingEndpoint, AdminError>, AdminError> {
    let object = polling_object(&new.name);
    // From the commit of this transaction on no event is skipped.
    let frontier = act.with(|conn| started(conn, new.start).map_err(store_error))?;
    let written = json!(types).to_string();
    let (token, secret) = (*new.token.as_bytes(), *new.secret.as_bytes());
    let params = params![
        new.name,
        new.tenant,
        new.all_tenants,
        written,
        token,
        secret,
        frontier,
        act.now.as_millis(),
        actor.name,
    ];
    let created = act.first(query!("poll/create"), params, shown)?;
    let Some(created) = created else {
        let what = format!("{object} already exists: remove it, or use another name");
        let detail = json!({"why": what});
        act.note(actor, "create", &object, &detail, "refused")?;
        return Ok(Err(AdminError::conflict(what)));
    };
    let detail = new.detail(types);
    act.note(actor, "create", &object, &detail, "done")?;
    Ok(Ok(created))
}

/// Replaces the token of an endpoint. The inner result is the refusal, whose line is committed.
fn rotate(
    act: &AuditedTransaction<'_>,
    actor: &Actor,
    name: &str,
    token: &TokenHash,
    overlap: Duration,
) -> Result<Result<PollingEndpoint, AdminError>, AdminError> {
    find(act, actor, name)?;
    let object = polling_object(name);
    let now = act.now.as_millis();
    let until = (!overlap.is_zero()).then(|| act.now.after(overlap).as_millis());
    if until.is_some() {
        let params = params![name, now];
        let refused = act.first(query!("poll/previous_tokens"), params, too_many)?;
        if let Some(what) = refused.flatten() {
            let detail = json!({"why": what});
            act.note(actor, "rotate", &object, &detail, "refused")?;
            return Ok(Err(AdminError::conflict(what)));
        }
        act.execute(query!("poll/keep_token"), params![name, until, now])?;
    }
    act.execute(query!("poll/end_tokens"), params![name, until, now])?;
    let params = params![name, *token.as_bytes(), until];
    let rotated = act.first(query!("poll/rotate"), params, shown)?;
    let rotated = PollingEndpoint::present(rotated, actor, name)?;
    let detail = json!({"old_token_until": rotated.old_token_until});
    act.note(actor, "rotate", &object, &detail, "done")?;
    Ok(Ok(rotated))
}

/// Why one more previous token is refused, if it is.
fn too_many(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    let first_end = optional_moment(row, "first_end")?;
    Ok(too_many_tokens(count(row, "number")?, first_end))
}

fn find(view: &View<'_>, actor: &Actor, name: &str) -> Result<PollingEndpoint, AdminError> {
    let found = view.first(query!("poll/show"), [name], shown)?;
    PollingEndpoint::present(found, actor, name)
}

/// The number of events that were looked at, and those of one type.
fn counted(row: &Row<'_>) -> rusqlite::Result<(i64, Option<EventsOfType>)> {
    let kind: Option<String> = row.get("type")?;
    let of_type = kind.map(|kind| {
        Ok::<_, rusqlite::Error>(EventsOfType {
            kind,
            number: count(row, "number")?,
            oldest_at: moment(row, "oldest_at")?,
        })
    });
    Ok((row.get("looked")?, of_type.transpose()?))
}

fn shown(row: &Row<'_>) -> rusqlite::Result<PollingEndpoint> {
    let types: String = row.get("types")?;
    Ok(PollingEndpoint {
        name: row.get("name")?,
        tenant: row.get("tenant")?,
        all_tenants: row.get("all_tenants")?,
        types: serde_json::from_str(&types).unwrap_or_default(),
        created_at: moment(row, "created_at")?,
        created_by: row.get("created_by")?,
        position: row.get("frontier")?,
        committed_at: optional_moment(row, "committed_at")?,
        last_polled_at: optional_moment(row, "last_polled_at")?,
        old_token_until: optional_moment(row, "old_token_until")?,
    })
}
