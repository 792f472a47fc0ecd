//! Destinations that are declared, paused or removed at run time.
//!
//! A relay of any process knows a change within a second.

use std::ops::ControlFlow;

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, Declared, DestinationAdmin, DestinationChanges, Job, JobKind, PAGE_MAX,
    Page, Partition, check_destination_name, check_spec_change, check_spec_tenant,
    destination_object, read_new_spec, read_spec, start_of,
};
use rusqlite::{Connection, Row, params};
use serde_json::json;

use super::{
    audited::AuditedTransaction,
    declared::{declared, optional_moment},
    handle::SqliteAdmin,
    jobs::{self, NewJob},
    view::View,
};
use crate::{delivery::start, error::store_error, query};

/// How long a job waits after the removal of a destination before it deletes rows, so that all
/// relays know of the removal.
const GRACE_MS: i64 = 5_000;

/// The result of an operation that may be refused.
type Refusable<R> = Result<Result<R, AdminError>, AdminError>;

#[async_trait]
impl DestinationChanges for SqliteAdmin {
    async fn changes(&self, since: i64) -> Result<Vec<Declared>, AdminError> {
        self.read(move |view| view.list(query!("admin/changes"), [since], declared))
            .await
    }
}

#[async_trait]
impl DestinationAdmin for SqliteAdmin {
    async fn declarations(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Declared>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let after = after.unwrap_or_default().to_owned();
        let actor = actor.clone();
        let list = move |view: &View<'_>| {
            let mut items = Vec::new();
            view.visit(query!("admin/declarations"), [after], |row| {
                let declared = declared(row)?;
                if declared.check_actor(&actor).is_ok() {
                    items.push(declared);
                }
                Ok(if items.len() == limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?;
            Ok(items)
        };
        let items = self.read(list).await?;
        Ok(Page::up_to(limit, items, |it| it.name.clone()))
    }

    async fn declaration(&self, actor: &Actor, name: &str) -> Result<Declared, AdminError> {
        let wanted = name.to_owned();
        let known = self.read(move |view| find(view, &wanted)).await?;
        let known = known.filter(|it| it.purged_at.is_none());
        let known = known.ok_or_else(|| AdminError::not_found(destination_object(name)))?;
        known.check_actor(actor)?;
        Ok(known)
    }

    async fn partitions(&self, name: Option<&str>) -> Result<Vec<Partition>, AdminError> {
        let name = name.map(str::to_owned);
        self.read(move |view| opened(view, name.as_deref())).await
    }

    async fn create_destination(
        &self,
        actor: &Actor,
        name: &str,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError> {
        check_destination_name(name)?;
        check_spec_tenant(actor, &read_new_spec(spec)?)?;
        let new = New::of(actor, name, spec, sealed);
        self.change_or_refuse(move |act| create(act, &new)).await
    }

    async fn change_destination(
        &self,
        actor: &Actor,
        name: &str,
        version: i64,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError> {
        check_spec_tenant(actor, &read_new_spec(spec)?)?;
        check_destination_name(name)?;
        let new = New::of(actor, name, spec, sealed);
        self.change_or_refuse(move |act| change(act, &new, version))
            .await
    }

    async fn pause_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        turn(self, actor, name, "pause", query!("admin/pause")).await
    }

    async fn resume_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        turn(self, actor, name, "resume", query!("admin/resume")).await
    }

    async fn remove_destination(&self, actor: &Actor, name: &str) -> Result<Job, AdminError> {
        check_destination_name(name)?;
        let (actor, name) = (actor.clone(), name.to_owned());
        self.change(move |act| remove(act, &actor, &name)).await
    }
}

/// The partitions that were ever opened, of one destination or of all.
pub(super) fn opened(view: &View<'_>, name: Option<&str>) -> Result<Vec<Partition>, AdminError> {
    let partition = |row: &Row<'_>| {
        Ok(Partition {
            name: row.get("name")?,
            disabled_at: optional_moment(row, "disabled_at")?,
            disabled_reason: row.get("disabled_reason")?,
        })
    };
    view.list(query!("admin/partitions"), [name], partition)
}

fn find(view: &View<'_>, name: &str) -> Result<Option<Declared>, AdminError> {
    view.first(query!("admin/declaration"), [name], declared)
}

/// A declaration to be written.
struct New {
    actor: Actor,
    name: String,
    spec: String,
    sealed: Option<Vec<u8>>,
}

impl New {
    fn of(actor: &Actor, name: &str, spec: &str, sealed: Option<&[u8]>) -> Self {
        Self {
            actor: actor.clone(),
            name: name.to_owned(),
            spec: spec.to_owned(),
            sealed: sealed.map(<[u8]>::to_vec),
        }
    }
}

fn create(act: &AuditedTransaction<'_>, new: &New) -> Refusable<Declared> {
    let known = find(act, &new.name)?;
    let (now, by) = (act.now.as_millis(), &new.actor.name);
    let params = params![new.name, new.spec, new.sealed, by, now];
    let object = destination_object(&new.name);
    let spec = read_spec(&new.spec)?;
    let start = start_of(&spec)?;
    if let Some(created) = act.first(query!("admin/create"), params, declared)? {
        act.execute(query!("admin/forget_start"), [&new.name])?;
        // From the commit of this transaction on no event is skipped.
        let record = |conn: &Connection| start::record(conn, &new.name, start, act.now);
        act.with(|conn| record(conn).map_err(store_error))?;
        let detail = json!({"version": created.version, "spec": spec});
        act.note(&new.actor, "create", &object, &detail, "done")?;
        return Ok(Ok(created));
    }
    let what = match known {
        Some(known) if known.removed_at.is_some() => "is still being removed: try again later",
        _ => "already exists: change it",
    };
    refused(
        act,
        &new.actor,
        "create",
        &new.name,
        format!("{object} {what}"),
    )
}

fn change(act: &AuditedTransaction<'_>, new: &New, version: i64) -> Refusable<Declared> {
    let (name, actor) = (&new.name, &new.actor);
    let known = Declared::present(find(act, name)?, actor, name)?;
    let Some(old) = known.spec else {
        return Err(AdminError::conflict(format!(
            "destination {name} is declared in a configuration file: change it there"
        )));
    };
    let spec = read_spec(&new.spec)?;
    check_spec_change(&read_spec(&old)?, &spec)?;
    let now = act.now.as_millis();
    let params = params![name, version, new.spec, new.sealed, actor.name, now];
    if let Some(changed) = act.first(query!("admin/change"), params, declared)? {
        let detail = json!({"from": version, "version": changed.version, "spec": spec});
        act.note(actor, "change", &destination_object(name), &detail, "done")?;
        return Ok(Ok(changed));
    }
    let what = format!("destination {name} was changed since version {version}: look at it again");
    refused(act, actor, "change", name, what)
}

/// Pauses or resumes a destination.
async fn turn(
    store: &SqliteAdmin,
    actor: &Actor,
    name: &str,
    action: &'static str,
    sql: &'static str,
) -> Result<bool, AdminError> {
    check_destination_name(name)?;
    let (actor, name) = (actor.clone(), name.to_owned());
    let turn = move |act: &AuditedTransaction<'_>| {
        must_be_known(act, &actor, find(act, &name)?, &name)?;
        let params = params![name, actor.name, act.now.as_millis()];
        let is_turned = act.execute(sql, params)? > 0;
        let outcome = if is_turned { "done" } else { "nothing" };
        act.note(
            &actor,
            action,
            &destination_object(&name),
            &json!({}),
            outcome,
        )?;
        Ok(is_turned)
    };
    store.change(turn).await
}

fn remove(act: &AuditedTransaction<'_>, actor: &Actor, name: &str) -> Result<Job, AdminError> {
    let known = find(act, name)?;
    let object = destination_object(name);
    if let Some(known) = &known
        && known.removed_at.is_some()
        && known.purged_at.is_none()
    {
        known.check_actor(actor)?;
        take_up(act, actor, name)?;
        let found = jobs::removal_of(act, name)?;
        return found.ok_or_else(|| AdminError::not_found(format!("removal of {object}")));
    }
    must_be_known(act, actor, known, name)?;
    let params = params![name, actor.name, act.now.as_millis()];
    act.execute(query!("admin/remove"), params)?;
    let job = NewJob {
        kind: JobKind::RemoveDestination,
        destination: name.to_owned(),
        arguments: json!({}),
        beyond: 0,
        total: None,
        per_second: None,
        after_ms: GRACE_MS,
        request_key: None,
    };
    let job = job.write(act, actor)?;
    act.note(actor, "remove", &object, &json!({"job": job.id}), "done")?;
    Ok(job)
}

/// Starts the job of a removal again that was given up, because only this job can free the name.
fn take_up(act: &AuditedTransaction<'_>, actor: &Actor, name: &str) -> Result<(), AdminError> {
    let kind = JobKind::RemoveDestination.as_str();
    let params = params![name, kind, act.now.as_millis()];
    let taken: Option<i64> = act.first(query!("admin/take_up"), params, |row| row.get(0))?;
    let Some(job) = taken else {
        return Ok(());
    };
    let detail = json!({"job": job});
    act.note(actor, "remove", &destination_object(name), &detail, "done")
}

/// Checks that a destination exists: it is declared and not removed, or a relay has opened it or
/// recorded where it starts.
fn must_be_known(
    view: &View<'_>,
    actor: &Actor,
    known: Option<Declared>,
    name: &str,
) -> Result<(), AdminError> {
    if known.is_some() {
        return Declared::present(known, actor, name).map(drop);
    }
    let has_start = view.first(query!("admin/has_start"), [name], |row| row.get(0))?;
    let has_start: bool = has_start.unwrap_or_default();
    let is_known = has_start || !opened(view, Some(name))?.is_empty();
    if !is_known || actor.tenant.is_some() {
        return Err(AdminError::not_found(destination_object(name)));
    }
    Ok(())
}

/// Writes a refused operation to the audit log and returns the refusal.
fn refused<R>(
    act: &AuditedTransaction<'_>,
    actor: &Actor,
    action: &str,
    name: &str,
    what: String,
) -> Refusable<R> {
    let detail = json!({"why": what});
    act.note(actor, action, &destination_object(name), &detail, "refused")?;
    Ok(Err(AdminError::conflict(what)))
}
