//! Destinations that are declared at run time: kept in the database, changed by whoever saw the
//! last change, and heard of by every relay within the second.
//!
//! What a destination is stands in its `spec`, JSON that this crate hardly looks into; its secrets
//! are sealed by whoever declares it, and this crate never sees a key. A destination that a
//! configuration file declares can be paused and removed here as well.

use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{
    Actor, OperateError, PAGE_MAX, Page,
    act::Act,
    declared::{declared, moment},
    jobs::{self, Job, Kind},
};
use crate::{outbox::rows, postgres::Postgres, query, settle::text, value::Param};

pub use super::declared::{Declared, Part};

/// How long relays have to hear that a destination is removed before it is taken apart.
const GRACE_MS: i64 = 5_000;

impl Postgres {
    /// What was declared, changed, paused or removed since a version, in the order in which it was.
    ///
    /// Whoever goes on with the highest version that it was told misses nothing.
    ///
    /// # Errors
    /// Fails when the store cannot be read.
    pub async fn changes(&self, since: i64) -> Result<Vec<Declared>, OperateError> {
        let found = self.ask(query!("operate/changes"), &[&since]).await?;
        Ok(found.iter().map(declared).collect())
    }
}

/// Declares a destination under a free name.
///
/// # Errors
/// `Conflict` while the name is taken, or what was removed under it is not gone yet.
pub async fn create(
    store: &Postgres,
    actor: &Actor,
    name: &str,
    spec: &str,
    sealed: Option<&[u8]>,
) -> Result<Declared, OperateError> {
    check_name(name)?;
    check_tenant(actor, &read(spec)?)?;
    let (mut act, known) = open(store, name).await?;
    let by = text(&actor.name);
    let params: [&dyn Param; 4] = [&name, &spec, &sealed, &by];
    let created = act.ask(query!("operate/create"), &params).await?;
    if let Some(row) = created.first() {
        let created = declared(row);
        let detail = json!({"version": created.version, "spec": read(spec)?});
        act.note(actor, "create", &object(name), &detail, "done")
            .await?;
        act.commit().await?;
        return Ok(created);
    }
    let what = match known {
        Some(known) if known.removed_at.is_some() => "is still being removed: try again later",
        _ => "exists: change it",
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

/// Changes a destination, if `version` is still its last change.
///
/// # Errors
/// `Conflict` when somebody else changed it since, `Invalid` when it would have other parts.
pub async fn change(
    store: &Postgres,
    actor: &Actor,
    name: &str,
    version: i64,
    spec: &str,
    sealed: Option<&[u8]>,
) -> Result<Declared, OperateError> {
    let new = read(spec)?;
    check_tenant(actor, &new)?;
    let (mut act, known) = open(store, name).await?;
    let Some(old) = present(known, actor, name)?.spec else {
        return Err(OperateError::conflict(format!(
            "destination {name} stands in a configuration file: change it there"
        )));
    };
    if parts_of(&read(&old)?) != parts_of(&new) {
        let problem = "are fixed for the life of a destination: create another one";
        return Err(OperateError::invalid("parts", problem));
    }
    let by = text(&actor.name);
    let params: [&dyn Param; 5] = [&name, &version, &spec, &sealed, &by];
    let changed = act.ask(query!("operate/change"), &params).await?;
    if let Some(row) = changed.first() {
        let changed = declared(row);
        let detail = json!({"from": version, "version": changed.version, "spec": new});
        act.note(actor, "change", &object(name), &detail, "done")
            .await?;
        act.commit().await?;
        return Ok(changed);
    }
    let what = format!("destination {name} was changed since version {version}: look at it again");
    refused(act, actor, "change", name, what).await
}

/// Has a destination offer nothing; false when it is paused already.
///
/// # Errors
/// `NotFound` when nobody declared it and no relay has opened it.
pub async fn pause(store: &Postgres, actor: &Actor, name: &str) -> Result<bool, OperateError> {
    turn(store, actor, name, "pause", query!("operate/pause")).await
}

/// Has a paused or disabled destination go on; false when it is neither.
///
/// # Errors
/// `NotFound` when nobody declared it and no relay has opened it.
pub async fn resume(store: &Postgres, actor: &Actor, name: &str) -> Result<bool, OperateError> {
    turn(store, actor, name, "resume", query!("operate/resume")).await
}

/// Removes a destination: relays let it go, and a job deletes its parked deliveries and its dead
/// letters; how far it had come is forgotten, and the outbox waits for it no longer.
///
/// Removed twice, it is removed once: the job is the same, and goes on if it was given up.
///
/// # Errors
/// `NotFound` when nobody declared it and no relay has opened it.
pub async fn remove(store: &Postgres, actor: &Actor, name: &str) -> Result<Job, OperateError> {
    let (mut act, known) = open(store, name).await?;
    let key = format!("remove {name}");
    if let Some(known) = &known
        && known.removed_at.is_some()
        && known.purged_at.is_none()
    {
        check_spec(actor, known, name)?;
        take_up(act, actor, name).await?;
        let jobs = jobs::list(store, &Actor::new(""), Some(name), None, None, PAGE_MAX).await?;
        let found = jobs.items.into_iter().find(|job| job.kind == Kind::Remove);
        return found.ok_or_else(|| OperateError::not_found(key));
    }
    must_be_known(&mut act, actor, known, name).await?;
    let by = text(&actor.name);
    let params: [&dyn Param; 2] = [&name, &by];
    act.ask(query!("operate/remove"), &params).await?;
    let job = jobs::NewJob {
        kind: Kind::Remove,
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
        &object(name),
        &json!({"job": job.id}),
        "done",
    )
    .await?;
    act.commit().await?;
    Ok(job)
}

/// What is declared about a destination that is not gone.
///
/// # Errors
/// `NotFound` when nothing is.
pub async fn get(store: &Postgres, actor: &Actor, name: &str) -> Result<Declared, OperateError> {
    let found = store.ask(query!("operate/declaration"), &[&name]).await?;
    let known = found.first().map(declared);
    let known = known.filter(|it| it.purged_at.is_none());
    let known = known.ok_or_else(|| OperateError::not_found(object(name)))?;
    check_spec(actor, &known, name)?;
    Ok(known)
}

/// Lists what is declared, by name, after a name.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Declared, String>, OperateError> {
    let limit = limit.clamp(1, PAGE_MAX);
    let (after, tenant, count) = (
        after.map(text).unwrap_or_default(),
        actor.tenant(),
        rows(limit),
    );
    let params: [&dyn Param; 3] = [&after, &tenant, &count];
    let found = store.ask(query!("operate/declarations"), &params).await?;
    let items: Vec<Declared> = found.iter().map(declared).collect();
    let next = items.last().filter(|_| items.len() == limit);
    let next = next.map(|it| it.name.clone());
    Ok(Page { items, next })
}

/// The parts of a destination that a relay has opened, or of all of them.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn parts(store: &Postgres, name: Option<&str>) -> Result<Vec<Part>, OperateError> {
    let found = store.ask(query!("operate/parts"), &[&name]).await?;
    let part = |row: &Row| Part {
        name: row.get(0),
        disabled_at: moment(row, 1),
        disabled_reason: row.get(2),
    };
    Ok(found.iter().map(part).collect())
}

/// Pauses or resumes.
async fn turn(
    store: &Postgres,
    actor: &Actor,
    name: &str,
    action: &str,
    sql: &'static str,
) -> Result<bool, OperateError> {
    let (mut act, known) = open(store, name).await?;
    must_be_known(&mut act, actor, known, name).await?;
    let by = text(&actor.name);
    let params: [&dyn Param; 2] = [&name, &by];
    let turned = !act.ask(sql, &params).await?.is_empty();
    let outcome = if turned { "done" } else { "nothing" };
    act.note(actor, action, &object(name), &json!({}), outcome)
        .await?;
    act.commit().await?;
    Ok(turned)
}

/// Opens the one transaction in which declarations change, with what is declared.
async fn open<'a>(
    store: &'a Postgres,
    name: &str,
) -> Result<(Act<'a>, Option<Declared>), OperateError> {
    check_name(name)?;
    let mut act = Act::begin(store).await?;
    act.ask(query!("operate/hold_declarations"), &[]).await?;
    let found = act.ask(query!("operate/declaration"), &[&name]).await?;
    Ok((act, found.first().map(declared)))
}

/// Has a removal that was given up go on: nothing else would free the name.
async fn take_up(mut act: Act<'_>, actor: &Actor, name: &str) -> Result<(), OperateError> {
    let kind = Kind::Remove.as_str();
    let params: [&dyn Param; 2] = [&name, &kind];
    let taken = act.ask(query!("operate/take_up"), &params).await?;
    let Some(row) = taken.first() else {
        act.rollback().await;
        return Ok(());
    };
    let detail = json!({"job": row.get::<_, i64>(0)});
    act.note(actor, "remove", &object(name), &detail, "done")
        .await?;
    act.commit().await?;
    Ok(())
}

/// A destination that is there: declared and not removed, or opened by a relay.
async fn must_be_known(
    act: &mut Act<'_>,
    actor: &Actor,
    known: Option<Declared>,
    name: &str,
) -> Result<(), OperateError> {
    if known.is_some() {
        return present(known, actor, name).map(drop);
    }
    let opened = act.ask(query!("operate/parts"), &[&Some(name)]).await?;
    if opened.is_empty() || actor.tenant.is_some() {
        return Err(OperateError::not_found(object(name)));
    }
    Ok(())
}

fn present(known: Option<Declared>, actor: &Actor, name: &str) -> Result<Declared, OperateError> {
    let known = known.filter(|it| it.removed_at.is_none());
    let known = known.ok_or_else(|| OperateError::not_found(object(name)))?;
    check_spec(actor, &known, name)?;
    Ok(known)
}

/// Notes that an act was refused, and says why.
async fn refused<R>(
    mut act: Act<'_>,
    actor: &Actor,
    action: &str,
    name: &str,
    what: String,
) -> Result<R, OperateError> {
    act.note(
        actor,
        action,
        &object(name),
        &json!({"why": what}),
        "refused",
    )
    .await?;
    act.commit().await?;
    Err(OperateError::conflict(what))
}

pub(super) fn object(name: &str) -> String {
    format!("destination {name}")
}

/// Another tenant's destination is none.
fn check_spec(actor: &Actor, known: &Declared, name: &str) -> Result<(), OperateError> {
    let spec = known.spec.as_deref().map_or(Ok(Value::Null), read)?;
    check_tenant(actor, &spec).map_err(|_| OperateError::not_found(object(name)))
}

fn check_tenant(actor: &Actor, spec: &Value) -> Result<(), OperateError> {
    match actor.tenant() {
        Some(own) if spec["tenant"].as_str() != Some(own) => {
            let problem = format!("is {own}: no other can be asked for here");
            Err(OperateError::invalid("tenant", problem))
        }
        _ => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), OperateError> {
    if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) {
        let problem = "is 1 to 255 bytes without a slash";
        return Err(OperateError::invalid("name", problem));
    }
    Ok(())
}

fn read(spec: &str) -> Result<Value, OperateError> {
    let read = serde_json::from_str::<Value>(spec)
        .ok()
        .filter(Value::is_object);
    read.ok_or_else(|| OperateError::invalid("spec", "is no JSON object"))
}

pub(super) fn parts_of(spec: &Value) -> u64 {
    spec["parts"].as_u64().unwrap_or(1)
}
