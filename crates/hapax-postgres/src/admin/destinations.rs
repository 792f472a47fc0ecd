//! Destinations that are declared at run time and stored in the database.
//!
//! All relays know a change within two seconds.

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, Declared, DestinationAdmin, DestinationChanges, Job, JobAdmin, JobFilter,
    JobKind, PAGE_MAX, Page, Partition, check_destination_name, check_spec_change,
    check_spec_tenant, destination_object, read_new_spec, read_spec, start_of,
};
use serde_json::json;
use tokio_postgres::Row;

use super::{
    audited::AuditedTransaction,
    declared::{declared, moment},
    jobs,
};
use crate::{
    delivery::{settle::text, start},
    postgres::Postgres,
    query,
    value::{Param, rows},
};

/// How long a job waits after the removal of a destination before it deletes rows, so that all
/// relays know of the removal.
const GRACE_MS: i64 = 5_000;

#[async_trait]
impl DestinationChanges for Postgres {
    async fn changes(&self, since: i64) -> Result<Vec<Declared>, AdminError> {
        let found = self.ask(query!("admin/changes"), &[&since]).await?;
        Ok(found.iter().map(declared).collect())
    }
}

#[async_trait]
impl DestinationAdmin for Postgres {
    async fn declarations(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Declared>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (after, tenant, count) = (
            after.map(text).unwrap_or_default(),
            actor.tenant(),
            rows(limit),
        );
        let params: [&dyn Param; 3] = [&after, &tenant, &count];
        let found = self.ask(query!("admin/declarations"), &params).await?;
        let items: Vec<Declared> = found.iter().map(declared).collect();
        Ok(Page::up_to(limit, items, |it| it.name.clone()))
    }

    async fn declaration(&self, actor: &Actor, name: &str) -> Result<Declared, AdminError> {
        let found = self
            .ask(query!("admin/declaration"), &[&text(name)])
            .await?;
        let known = found.first().map(declared);
        let known = known.filter(|it| it.purged_at.is_none());
        let known = known.ok_or_else(|| AdminError::not_found(destination_object(name)))?;
        known.check_actor(actor)?;
        Ok(known)
    }

    async fn partitions(&self, name: Option<&str>) -> Result<Vec<Partition>, AdminError> {
        let name = name.map(text);
        let found = self.ask(query!("admin/partitions"), &[&name]).await?;
        let partition = |row: &Row| Partition {
            name: row.get("name"),
            disabled_at: moment(row, "disabled_at"),
            disabled_reason: row.get("disabled_reason"),
        };
        Ok(found.iter().map(partition).collect())
    }

    async fn create_destination(
        &self,
        actor: &Actor,
        name: &str,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError> {
        check_destination_name(name)?;
        let new = read_new_spec(spec)?;
        check_spec_tenant(actor, &new)?;
        let start = start_of(&new)?;
        let (mut act, known) = open(self, name).await?;
        let by = text(&actor.name);
        let params: [&dyn Param; 4] = [&name, &spec, &sealed, &by];
        let created = act.ask(query!("admin/create"), &params).await?;
        if let Some(row) = created.first() {
            let created = declared(row);
            act.ask(query!("admin/forget_start"), &[&name]).await?;
            // From the commit of this transaction on no event is skipped.
            let (word, time) = start::columns(start);
            let params: [&dyn Param; 3] = [&name, &word, &time];
            act.ask(query!("delivery/record_start"), &params).await?;
            let detail = json!({"version": created.version, "spec": new});
            act.note(actor, "create", &destination_object(name), &detail, "done")
                .await?;
            act.commit().await?;
            return Ok(created);
        }
        let what = match known {
            Some(known) if known.removed_at.is_some() => "is still being removed: try again later",
            _ => "already exists: change it",
        };
        refused(
            act,
            actor,
            "create",
            name,
            format!("destination {name} {what}"),
        )
        .await
    }

    async fn change_destination(
        &self,
        actor: &Actor,
        name: &str,
        version: i64,
        spec: &str,
        sealed: Option<&[u8]>,
    ) -> Result<Declared, AdminError> {
        let new = read_new_spec(spec)?;
        check_spec_tenant(actor, &new)?;
        let (mut act, known) = open(self, name).await?;
        let Some(old) = Declared::present(known, actor, name)?.spec else {
            return Err(AdminError::conflict(format!(
                "destination {name} is declared in a configuration file: change it there"
            )));
        };
        check_spec_change(&read_spec(&old)?, &new)?;
        let by = text(&actor.name);
        let params: [&dyn Param; 5] = [&name, &version, &spec, &sealed, &by];
        let changed = act.ask(query!("admin/change"), &params).await?;
        if let Some(row) = changed.first() {
            let changed = declared(row);
            let detail = json!({"from": version, "version": changed.version, "spec": new});
            act.note(actor, "change", &destination_object(name), &detail, "done")
                .await?;
            act.commit().await?;
            return Ok(changed);
        }
        let what =
            format!("destination {name} was changed since version {version}: look at it again");
        refused(act, actor, "change", name, what).await
    }

    async fn pause_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        set_paused(self, actor, name, "pause", query!("admin/pause")).await
    }

    async fn resume_destination(&self, actor: &Actor, name: &str) -> Result<bool, AdminError> {
        set_paused(self, actor, name, "resume", query!("admin/resume")).await
    }

    async fn remove_destination(&self, actor: &Actor, name: &str) -> Result<Job, AdminError> {
        let (mut act, known) = open(self, name).await?;
        let key = format!("remove {name}");
        if let Some(known) = &known
            && known.removed_at.is_some()
            && known.purged_at.is_none()
        {
            known.check_actor(actor)?;
            take_up(act, actor, name).await?;
            let filter = JobFilter {
                destination: Some(name.to_owned()),
                state: None,
            };
            let jobs = self.jobs(&Actor::new(""), &filter, None, PAGE_MAX).await?;
            let found = jobs
                .items
                .into_iter()
                .find(|job| job.kind == JobKind::RemoveDestination);
            return found.ok_or_else(|| AdminError::not_found(key));
        }
        must_be_known(&mut act, actor, known, name).await?;
        let by = text(&actor.name);
        let params: [&dyn Param; 2] = [&name, &by];
        act.ask(query!("admin/remove"), &params).await?;
        let job = jobs::NewJob {
            kind: JobKind::RemoveDestination,
            destination: name,
            arguments: json!({}),
            beyond: 0,
            total: None,
            per_second: None,
            after_ms: GRACE_MS,
            request_key: None,
        };
        let job = job.write(&mut act, actor).await?;
        act.note(
            actor,
            "remove",
            &destination_object(name),
            &json!({"job": job.id}),
            "done",
        )
        .await?;
        act.commit().await?;
        Ok(job)
    }
}

/// Pauses or resumes a destination.
async fn set_paused(
    store: &Postgres,
    actor: &Actor,
    name: &str,
    action: &str,
    sql: &'static str,
) -> Result<bool, AdminError> {
    let (mut act, known) = open(store, name).await?;
    must_be_known(&mut act, actor, known, name).await?;
    let by = text(&actor.name);
    let params: [&dyn Param; 2] = [&name, &by];
    let turned = !act.ask(sql, &params).await?.is_empty();
    let outcome = if turned { "done" } else { "nothing" };
    act.note(
        actor,
        action,
        &destination_object(name),
        &json!({}),
        outcome,
    )
    .await?;
    act.commit().await?;
    Ok(turned)
}

/// Begins a transaction that locks all declarations, and reads the declaration of a name.
async fn open<'a>(
    store: &'a Postgres,
    name: &str,
) -> Result<(AuditedTransaction<'a>, Option<Declared>), AdminError> {
    check_destination_name(name)?;
    let mut act = AuditedTransaction::begin(store).await?;
    act.ask(query!("admin/hold_declarations"), &[]).await?;
    let found = act.ask(query!("admin/declaration"), &[&name]).await?;
    Ok((act, found.first().map(declared)))
}

/// Starts the job of a removal again that was given up, because only this job can free the name.
async fn take_up(
    mut act: AuditedTransaction<'_>,
    actor: &Actor,
    name: &str,
) -> Result<(), AdminError> {
    let kind = JobKind::RemoveDestination.as_str();
    let params: [&dyn Param; 2] = [&name, &kind];
    let taken = act.ask(query!("admin/take_up"), &params).await?;
    let Some(row) = taken.first() else {
        act.rollback().await;
        return Ok(());
    };
    let detail = json!({"job": row.get::<_, i64>(0)});
    act.note(actor, "remove", &destination_object(name), &detail, "done")
        .await?;
    act.commit().await?;
    Ok(())
}

/// Checks that a destination exists: it is declared and not removed, or a relay has opened it or
/// recorded where it starts.
async fn must_be_known(
    act: &mut AuditedTransaction<'_>,
    actor: &Actor,
    known: Option<Declared>,
    name: &str,
) -> Result<(), AdminError> {
    if known.is_some() {
        return Declared::present(known, actor, name).map(drop);
    }
    let opened = act.ask(query!("admin/partitions"), &[&Some(name)]).await?;
    let start = act.ask(query!("admin/has_start"), &[&name]).await?;
    let has_start = start.first().is_some_and(|row| row.get(0));
    if opened.is_empty() && !has_start || actor.tenant.is_some() {
        return Err(AdminError::not_found(destination_object(name)));
    }
    Ok(())
}

/// Writes a refused operation to the audit log and returns the error.
async fn refused<R>(
    mut act: AuditedTransaction<'_>,
    actor: &Actor,
    action: &str,
    name: &str,
    what: String,
) -> Result<R, AdminError> {
    act.note(
        actor,
        action,
        &destination_object(name),
        &json!({"why": what}),
        "refused",
    )
    .await?;
    act.commit().await?;
    Err(AdminError::conflict(what))
}
