//! Dead letters: replaying, editing and discarding them.
//!
//! These functions process one dead letter. Many at once are processed by a job.

use hapax::{
    event::{Headers, Payload},
    keyring::ENCRYPTED_UNDER,
    outbox::Sealed,
};
use serde_json::json;
use tokio_postgres::Row;

use super::{
    Actor, AdminError, Filter, audited::AuditedTransaction, destinations, filters::Filters, patch,
    seen::Seen,
};
use crate::{
    delivery::settle::text,
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Maximum length of the reason for discarding dead letters, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// Makes one dead letter due again, as if it had never been tried. Its old attempts stay in the
/// log.
///
/// # Errors
/// `NotFound` if the delivery does not exist; `Conflict` if it is not dead, or no longer.
pub async fn replay(
    store: &Postgres,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<(), AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    look(&mut act, actor, partition, position).await?;
    let replayed = replay_all(&mut act, store, partition, &[position]).await?;
    finish(
        act,
        actor,
        "replay",
        partition,
        position,
        json!({}),
        replayed,
    )
    .await
}

/// Makes one dead letter due again with an edited payload, as if it had never been tried. The patch
/// is a JSON merge patch (RFC 7396) and is applied to the payload that the destination was offered
/// last.
///
/// The event itself is not changed, nor what other destinations are offered. The event keeps its
/// id, so a consumer that has accepted the event in the meantime refuses the edited one as a
/// mismatch. The audit log contains the names of the replaced members, but no values.
///
/// # Errors
/// The same as [`replay`]; `Invalid` if the patch is not a JSON object, or makes the payload too
/// large; `Conflict` if the payload is not JSON, or is encrypted with a key that is not known here.
pub async fn edit_and_replay(
    store: &Postgres,
    actor: &Actor,
    partition: &str,
    position: i64,
    patch: &str,
) -> Result<(), AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    look(&mut act, actor, partition, position).await?;
    let params: [&dyn Param; 3] = [&partition, &position.saturating_sub(1), &1_i64];
    let found = act.ask(query!("delivery/dead_letters"), &params).await?;
    let mut replayed = 0;
    if let Some(row) = found.iter().find(|row| row.get::<_, i64>(0) == position) {
        let edited = edited(store, row, patch)?;
        let (payload, headers) = (edited.payload(), edited.headers.as_str());
        let params: [&dyn Param; 4] = [&partition, &position, &payload, &headers];
        act.ask(query!("admin/edit"), &params).await?;
        replayed = replay_all(&mut act, store, partition, &[position]).await?;
    }
    let detail = json!({"members": patch::names(patch)});
    finish(act, actor, "edit", partition, position, detail, replayed).await
}

/// The edited event that is offered in place of a dead letter's event.
fn edited(store: &Postgres, row: &Row, patch: &str) -> Result<Sealed, AdminError> {
    let headers: Headers = serde_json::from_str(row.get("headers")).unwrap_or_default();
    let event = outbox::event(row, store.keyring())
        .map_err(|error| AdminError::conflict(format!("it cannot be read here: {error}")))?;
    let mut event = event.event.clone();
    // An event that has the header but is not encrypted is treated like one without the header.
    let is_mistaken = event.headers.remove(ENCRYPTED_UNDER).is_some();
    let Payload::Json(payload) = &event.payload else {
        return Err(AdminError::conflict("its payload is not JSON"));
    };
    let payload =
        patch::merged(payload, patch).map_err(|problem| AdminError::invalid("patch", problem))?;
    let is_encrypted = headers.contains_key(ENCRYPTED_UNDER) && !is_mistaken;
    Sealed::anew(&event, payload, is_encrypted, store.keyring())
        .map_err(|error| AdminError::invalid("patch", error.to_string()))
}

/// Discards one dead letter permanently, with a reason, and releases the deliveries that it
/// blocked.
///
/// # Errors
/// The same as [`replay`]; `Invalid` without a reason.
pub async fn discard(
    store: &Postgres,
    actor: &Actor,
    partition: &str,
    position: i64,
    reason: &str,
) -> Result<(), AdminError> {
    check_reason(reason)?;
    let mut act = AuditedTransaction::begin(store).await?;
    look(&mut act, actor, partition, position).await?;
    let discarded = discard_all(&mut act, store, partition, &[position], reason).await?;
    let detail = json!({"reason": reason});
    finish(
        act, actor, "discard", partition, position, detail, discarded,
    )
    .await
}

/// Counts the dead letters of a destination that match a filter and were dead when `seen` was
/// taken. A job with the same `seen` processes exactly these.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn count(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    seen: &Seen,
) -> Result<u64, AdminError> {
    let Some(find) = Filters::of(actor, filter) else {
        return Ok(0);
    };
    let mut count = 0;
    for partition in destinations::partitions(store, Some(destination)).await? {
        let mut after = 0_i64;
        loop {
            let at = Moment(seen.at);
            let params = find.with(&[
                &partition.name,
                &after,
                &COUNTED,
                &find.attempts_min,
                &find.error,
                &seen.until,
                &seen.snapshot,
                &at,
            ]);
            let looked = store.ask(query!("admin/dead_beyond"), &params).await?;
            count += looked.iter().filter(|row| row.get(1)).count() as u64;
            match looked.last().filter(|_| rows(looked.len()) == COUNTED) {
                Some(last) => after = last.get(0),
                None => break,
            }
        }
    }
    Ok(count)
}

/// Dead letters that one query counts.
const COUNTED: i64 = 5_000;

/// Makes dead letters of a partition due again, in a transaction that has locked the partition.
pub(super) async fn replay_all(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    partition: &str,
    positions: &[i64],
) -> Result<u64, AdminError> {
    let now = store.now();
    let params: [&dyn Param; 3] = [&partition, &positions, &now];
    let replayed = act.ask(query!("admin/replay"), &params).await?;
    Ok(replayed.len() as u64)
}

/// Discards dead letters of a partition, in a transaction that has locked the partition.
pub(super) async fn discard_all(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    partition: &str,
    positions: &[i64],
    reason: &str,
) -> Result<u64, AdminError> {
    let (now, reason) = (store.now(), text(reason));
    let params: [&dyn Param; 4] = [&partition, &positions, &now, &reason];
    let discarded = act.ask(query!("admin/discard"), &params).await?;
    let keys = discarded
        .iter()
        .filter_map(|row| row.get::<_, Option<String>>(0));
    let keys: Vec<String> = keys.collect();
    if !keys.is_empty() {
        let params: [&dyn Param; 3] = [&partition, &keys, &now];
        act.ask(query!("delivery/release"), &params).await?;
    }
    Ok(discarded.len() as u64)
}

pub(super) fn check_reason(reason: &str) -> Result<(), AdminError> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let problem = format!("must be 1 to {REASON_BYTES_MAX} bytes long");
        return Err(AdminError::invalid("reason", problem));
    }
    Ok(())
}

/// Locks the partition and checks that the delivery exists and this actor may see it.
async fn look(
    act: &mut AuditedTransaction<'_>,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<(), AdminError> {
    act.hold(partition).await?;
    let params: [&dyn Param; 2] = [&partition, &position];
    let found = act.ask(query!("admin/delivery"), &params).await?;
    let tenant = found.first().map(|row| row.get::<_, Option<&str>>(1));
    match (tenant, actor.tenant()) {
        (None, _) => Err(AdminError::not_found(object(partition, position))),
        (Some(tenant), Some(own)) if tenant != Some(own) => {
            Err(AdminError::not_found(object(partition, position)))
        }
        _ => Ok(()),
    }
}

async fn finish(
    mut act: AuditedTransaction<'_>,
    actor: &Actor,
    action: &str,
    partition: &str,
    position: i64,
    detail: serde_json::Value,
    changed: u64,
) -> Result<(), AdminError> {
    let object = object(partition, position);
    let outcome = if changed == 0 { "refused" } else { "done" };
    act.note(actor, action, &object, &detail, outcome).await?;
    act.commit().await?;
    if changed == 0 {
        return Err(AdminError::conflict(format!("{object} is not dead")));
    }
    Ok(())
}

fn object(partition: &str, position: i64) -> String {
    format!("delivery {partition} {position}")
}
