//! List of what is stalled, with one reason for each item.

use hapax::admin::{Actor, AdminError, Cause, PATIENCE, PartitionStatus, Stalled, StalledItem};
use tokio_postgres::Row;

use super::declared::moment;
use crate::{
    outbox::age,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// What is stalled and why, the most severe first.
pub(super) async fn of_partitions(
    store: &Postgres,
    actor: &Actor,
    partitions: &[PartitionStatus],
) -> Result<Vec<Stalled>, AdminError> {
    let (mut all, moving) = PartitionStatus::all_stalled(partitions);
    all.extend(order_keys(store, &moving).await?);
    all.extend(event_types(store, &moving).await?);
    all.extend(of_sagas(store, actor).await?);
    if actor.tenant.is_none() {
        all.extend(writers(store).await?);
    }
    all.sort_by_key(|it| it.cause.rank());
    Ok(all)
}

async fn order_keys(store: &Postgres, partitions: &[String]) -> Result<Vec<Stalled>, AdminError> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = partitions.to_vec();
    let params: [&dyn Param; 3] = [&partitions, &Stalled::HEADS, &Stalled::ORDER_KEYS];
    let found = store.ask(query!("admin/held_up"), &params).await?;
    Ok(found.iter().map(held_up).collect())
}

fn held_up(row: &Row) -> Stalled {
    let (position, error) = (row.get("position"), row.get("last_error"));
    let cause = if row.get::<_, &str>("state") == "dead" {
        Cause::BehindDeadLetter { position, error }
    } else {
        Cause::WaitsForRetry {
            position,
            attempts: row.get::<_, i32>("attempt").unsigned_abs(),
            next_at: row.get::<_, Moment>("next_at").0,
            error,
        }
    };
    let what = StalledItem::order_key(row.get("destination"), row.get("order_key"));
    Stalled::new(what, cause, moment(row, "changed_at"), number(row))
}

fn number(row: &Row) -> u64 {
    row.get::<_, i64>("number").unsigned_abs()
}

async fn event_types(store: &Postgres, partitions: &[String]) -> Result<Vec<Stalled>, AdminError> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = partitions.to_vec();
    let params: [&dyn Param; 3] = [&partitions, &Stalled::HEADS, &Stalled::EVENT_TYPES];
    let found = store.ask(query!("admin/declined"), &params).await?;
    let declined = |row: &Row| {
        let what = StalledItem::EventType {
            partition: row.get("destination"),
            kind: row.get("type"),
        };
        let cause = Cause::Declined {
            position: row.get("position"),
            error: row.get("error"),
        };
        Stalled::new(what, cause, moment(row, "since"), number(row))
    };
    Ok(found.iter().map(declined).collect())
}

async fn of_sagas(store: &Postgres, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
    let (patience, tenant, time) = (age(PATIENCE), actor.tenant(), store.time());
    let params: [&dyn Param; 4] = [&patience, &Stalled::SAGAS, &tenant, &time];
    let found = store.ask(query!("admin/sagas_waiting"), &params).await?;
    let kind = |row: &Row| {
        let what = StalledItem::Sagas {
            name: row.get("name"),
            version: u32::try_from(row.get::<_, i64>("version")).unwrap_or(0),
        };
        let cause = if row.get("is_asking") {
            Cause::NeedsAttention
        } else {
            Cause::NobodyKnows
        };
        Stalled::new(what, cause, moment(row, "since"), number(row))
    };
    Ok(found.iter().map(kind).collect())
}

async fn writers(store: &Postgres) -> Result<Vec<Stalled>, AdminError> {
    let found = store
        .ask(query!("admin/open_writers"), &[&age(PATIENCE)])
        .await?;
    let writer = |row: &Row| {
        let holder = row.get("holder");
        let cause = Cause::HeldBack { holder };
        Stalled::new(StalledItem::Outbox, cause, moment(row, "since"), 0)
    };
    Ok(found.iter().map(writer).collect())
}
