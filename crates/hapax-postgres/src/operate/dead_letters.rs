//! Dead letters: made due again or given up for good, one at a time here, many by a job.

use hapax::{
    event::{Headers, Payload},
    keyring::ENCRYPTED_UNDER,
    outbox::Sealed,
};
use serde_json::json;
use tokio_postgres::Row;

use super::{Actor, Filter, OperateError, act::Act, destinations, find::Find, patch, seen::Seen};
use crate::{
    outbox::{self, rows},
    postgres::Postgres,
    query,
    settle::text,
    value::{Moment, Param},
};

/// Bytes of the reason for which dead letters are discarded.
pub const REASON_BYTES_MAX: usize = 1024;

/// Makes one dead letter due again, as if never tried; its old attempts stay in the log.
///
/// # Errors
/// `NotFound` when there is no such delivery, `Conflict` when it is not dead (any more).
pub async fn replay(
    store: &Postgres,
    actor: &Actor,
    part: &str,
    position: i64,
) -> Result<(), OperateError> {
    let mut act = Act::begin(store).await?;
    look(&mut act, actor, part, position).await?;
    let replayed = replay_all(&mut act, store, part, &[position]).await?;
    finish(act, actor, "replay", part, position, json!({}), replayed).await
}

/// Makes one dead letter due again, as if never tried, with what it says edited: a JSON merge patch
/// (RFC 7396) is applied to what its destination was offered last.
///
/// The event itself stays as it was committed, and so does what other destinations are offered; its id
/// stays too, so that a consumer that took the event meanwhile refuses the edited one as a mismatch. The
/// audit log has the names of the members that were replaced, and no value.
///
/// # Errors
/// As [`replay`]; `Invalid` when the patch is no JSON object, or makes the payload too large; `Conflict`
/// when the payload is no JSON, or is encrypted under a key that is not known here.
pub async fn edit_and_replay(
    store: &Postgres,
    actor: &Actor,
    part: &str,
    position: i64,
    patch: &str,
) -> Result<(), OperateError> {
    let mut act = Act::begin(store).await?;
    look(&mut act, actor, part, position).await?;
    let params: [&dyn Param; 3] = [&part, &position.saturating_sub(1), &1_i64];
    let found = act.ask(query!("delivery/dead_letters"), &params).await?;
    let mut replayed = 0;
    if let Some(row) = found.iter().find(|row| row.get::<_, i64>(0) == position) {
        let edited = edited(store, row, patch)?;
        let (payload, headers) = (edited.payload(), edited.headers.as_str());
        let params: [&dyn Param; 4] = [&part, &position, &payload, &headers];
        act.ask(query!("operate/edit"), &params).await?;
        replayed = replay_all(&mut act, store, part, &[position]).await?;
    }
    let detail = json!({"members": patch::names(patch)});
    finish(act, actor, "edit", part, position, detail, replayed).await
}

/// What is offered in place of a dead letter's event, as its row has it.
fn edited(store: &Postgres, row: &Row, patch: &str) -> Result<Sealed, OperateError> {
    let headers: Headers = serde_json::from_str(row.get(8)).unwrap_or_default();
    let event = outbox::event(row, store.keyring())
        .map_err(|error| OperateError::conflict(format!("it cannot be read here: {error}")))?;
    let mut event = event.event.clone();
    // What was marked and is not encrypted is an event like any other without the mark.
    let is_mistaken = event.headers.remove(ENCRYPTED_UNDER).is_some();
    let Payload::Json(payload) = &event.payload else {
        return Err(OperateError::conflict("what it says is no JSON"));
    };
    let payload =
        patch::merged(payload, patch).map_err(|problem| OperateError::invalid("patch", problem))?;
    let is_encrypted = headers.contains_key(ENCRYPTED_UNDER) && !is_mistaken;
    Sealed::anew(&event, payload, is_encrypted, store.keyring())
        .map_err(|error| OperateError::invalid("patch", error.to_string()))
}

/// Gives one dead letter up for good, with a reason, and lets go what it held up.
///
/// # Errors
/// As [`replay`]; `Invalid` without a reason.
pub async fn discard(
    store: &Postgres,
    actor: &Actor,
    part: &str,
    position: i64,
    reason: &str,
) -> Result<(), OperateError> {
    check_reason(reason)?;
    let mut act = Act::begin(store).await?;
    look(&mut act, actor, part, position).await?;
    let discarded = discard_all(&mut act, store, part, &[position], reason).await?;
    let detail = json!({"reason": reason});
    finish(act, actor, "discard", part, position, detail, discarded).await
}

/// Counts the dead letters that a filter fits, at one destination, of those that were dead when `seen`
/// was taken: what a job is about that is bound by it.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn count(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    seen: &Seen,
) -> Result<u64, OperateError> {
    let Some(find) = Find::of(actor, filter) else {
        return Ok(0);
    };
    let mut count = 0;
    for part in destinations::parts(store, Some(destination)).await? {
        let mut after = 0_i64;
        loop {
            let at = Moment(seen.at);
            let params = find.with(&[
                &part.name,
                &after,
                &COUNTED,
                &find.attempts_min,
                &find.error,
                &seen.until,
                &seen.snapshot,
                &at,
            ]);
            let looked = store.ask(query!("operate/dead_beyond"), &params).await?;
            count += looked.iter().filter(|row| row.get(1)).count() as u64;
            match looked.last().filter(|_| rows(looked.len()) == COUNTED) {
                Some(last) => after = last.get(0),
                None => break,
            }
        }
    }
    Ok(count)
}

/// Dead letters that one look counts.
const COUNTED: i64 = 5_000;

/// Makes these dead letters of a part due again, in a transaction that holds it.
pub(super) async fn replay_all(
    act: &mut Act<'_>,
    store: &Postgres,
    part: &str,
    positions: &[i64],
) -> Result<u64, OperateError> {
    let now = store.now();
    let params: [&dyn Param; 3] = [&part, &positions, &now];
    let replayed = act.ask(query!("operate/replay"), &params).await?;
    Ok(replayed.len() as u64)
}

/// Gives these dead letters of a part up, in a transaction that holds it.
pub(super) async fn discard_all(
    act: &mut Act<'_>,
    store: &Postgres,
    part: &str,
    positions: &[i64],
    reason: &str,
) -> Result<u64, OperateError> {
    let (now, reason) = (store.now(), text(reason));
    let params: [&dyn Param; 4] = [&part, &positions, &now, &reason];
    let discarded = act.ask(query!("operate/discard"), &params).await?;
    let keys = discarded
        .iter()
        .filter_map(|row| row.get::<_, Option<String>>(0));
    let keys: Vec<String> = keys.collect();
    if !keys.is_empty() {
        let params: [&dyn Param; 3] = [&part, &keys, &now];
        act.ask(query!("delivery/release"), &params).await?;
    }
    Ok(discarded.len() as u64)
}

pub(super) fn check_reason(reason: &str) -> Result<(), OperateError> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let problem = format!("is 1 to {REASON_BYTES_MAX} bytes");
        return Err(OperateError::invalid("reason", problem));
    }
    Ok(())
}

/// Takes hold of the part, and looks whether the delivery is there for this actor.
async fn look(
    act: &mut Act<'_>,
    actor: &Actor,
    part: &str,
    position: i64,
) -> Result<(), OperateError> {
    act.hold(part).await?;
    let params: [&dyn Param; 2] = [&part, &position];
    let found = act.ask(query!("operate/delivery"), &params).await?;
    let tenant = found.first().map(|row| row.get::<_, Option<&str>>(1));
    match (tenant, actor.tenant()) {
        (None, _) => Err(OperateError::not_found(object(part, position))),
        (Some(tenant), Some(own)) if tenant != Some(own) => {
            Err(OperateError::not_found(object(part, position)))
        }
        _ => Ok(()),
    }
}

async fn finish(
    mut act: Act<'_>,
    actor: &Actor,
    action: &str,
    part: &str,
    position: i64,
    detail: serde_json::Value,
    changed: u64,
) -> Result<(), OperateError> {
    let object = object(part, position);
    let outcome = if changed == 0 { "refused" } else { "done" };
    act.note(actor, action, &object, &detail, outcome).await?;
    act.commit().await?;
    if changed == 0 {
        return Err(OperateError::conflict(format!("{object} is not dead")));
    }
    Ok(())
}

fn object(part: &str, position: i64) -> String {
    format!("delivery {part} {position}")
}
