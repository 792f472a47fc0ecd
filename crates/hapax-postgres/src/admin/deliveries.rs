//! Deliveries that have a row: parked, dead, or finished after they were parked.
//!
//! An event that was delivered at the first attempt has no such row; its trace shows that attempt.

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, Delivery, DeliveryAdmin, DeliveryCursor, DeliveryFilter, DeliveryIndex,
    DeliveryStates, DestinationAdmin, EventFilter, PAGE_MAX, Page, check_reason, destination_of,
    patched_members, read_cursor,
};
use serde_json::json;
use tokio_postgres::Row;

use super::{
    audited::AuditedTransaction, dead_letters, filters::Filters, retry::retry_now, seen::Seen,
};
use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Rows that one page reads.
const LOOK: usize = 2_000;
/// Rows that a page reads per row that it shows if the filter matches everything. It is more than
/// one because the event of a finished delivery may be deleted.
const SPARE: usize = 4;

#[async_trait]
impl DeliveryAdmin for Postgres {
    async fn deliveries(
        &self,
        actor: &Actor,
        filter: &DeliveryFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, AdminError> {
        let wanted = DeliveryStates::of(filter)?;
        let Some(find) = Filters::of(actor, &filter.events) else {
            return Ok(Page::last(Vec::new()));
        };
        let before: Option<DeliveryCursor> = read_cursor(before, |text| text.parse().ok())?;
        let partitions = self.partitions(filter.destination.as_deref()).await?;
        let partitions: Vec<String> = partitions
            .into_iter()
            .map(|partition| partition.name)
            .collect();
        let words: Vec<&str> = wanted.states.iter().map(|state| state.as_str()).collect();
        let limit = limit.clamp(1, PAGE_MAX);
        let index = match wanted.index {
            DeliveryIndex::Dead => "dead",
            DeliveryIndex::Parked => "parked",
            DeliveryIndex::All => "all",
        };
        let look = if wanted.is_all && find.is_any() {
            LOOK.min(limit * SPARE)
        } else {
            LOOK
        };
        let (count, look) = (rows(limit), rows(look.max(limit)));
        let before_position = before.as_ref().map_or(i64::MAX, |it| it.position);
        let before_partition = before.as_ref().map_or("", |it| it.partition.as_str());
        let behind: [&dyn Param; 9] = [
            &partitions,
            &find.attempts_min,
            &find.error,
            &before_position,
            &before_partition,
            &look,
            &count,
            &words,
            &index,
        ];
        let params = find.with(&behind);
        let found = self.ask(query!("admin/deliveries"), &params).await?;
        let matching = found
            .iter()
            .filter(|row| row.get::<_, Option<&str>>("destination").is_some());
        let items: Vec<Delivery> = matching.map(delivery).collect();
        let full = items.last().filter(|_| items.len() == limit);
        let next = next(full, found.first(), look);
        let next = next.map(|cursor| cursor.to_string());
        Ok(Page { items, next })
    }

    async fn count_dead_letters(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        seen: &str,
    ) -> Result<u64, AdminError> {
        let Some(find) = Filters::of(actor, filter) else {
            return Ok(0);
        };
        let seen = Seen::parse(seen)?;
        let mut count = 0;
        for partition in self.partitions(Some(destination)).await? {
            let mut after = 0_i64;
            loop {
                let at = Moment(seen.at);
                let params = find.with(&[
                    &partition.name,
                    &after,
                    &dead_letters::COUNTED,
                    &find.attempts_min,
                    &find.error,
                    &seen.until,
                    &seen.snapshot,
                    &at,
                ]);
                let looked = self.ask(query!("admin/dead_beyond"), &params).await?;
                count += looked.iter().filter(|row| row.get(1)).count() as u64;
                match looked
                    .last()
                    .filter(|_| rows(looked.len()) == dead_letters::COUNTED)
                {
                    Some(last) => after = last.get(0),
                    None => break,
                }
            }
        }
        Ok(count)
    }

    async fn replay_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
    ) -> Result<(), AdminError> {
        let mut act = AuditedTransaction::begin(self).await?;
        dead_letters::look(&mut act, actor, partition, position).await?;
        let replayed = dead_letters::replay_all(&mut act, self, partition, &[position]).await?;
        dead_letters::finish(
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

    async fn edit_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        patch: &str,
    ) -> Result<(), AdminError> {
        let mut act = AuditedTransaction::begin(self).await?;
        dead_letters::look(&mut act, actor, partition, position).await?;
        let params: [&dyn Param; 3] = [&partition, &position.saturating_sub(1), &1_i64];
        let found = act.ask(query!("delivery/dead_letters"), &params).await?;
        let mut replayed = 0;
        if let Some(row) = found.iter().find(|row| row.get::<_, i64>(0) == position) {
            let edited = dead_letters::edited(self, row, patch)?;
            let (payload, headers) = (edited.payload(), edited.headers.as_str());
            let params: [&dyn Param; 4] = [&partition, &position, &payload, &headers];
            act.ask(query!("admin/edit"), &params).await?;
            replayed = dead_letters::replay_all(&mut act, self, partition, &[position]).await?;
        }
        let detail = json!({"members": patched_members(patch)});
        dead_letters::finish(act, actor, "edit", partition, position, detail, replayed).await
    }

    async fn discard_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        reason: &str,
    ) -> Result<(), AdminError> {
        check_reason(reason)?;
        let mut act = AuditedTransaction::begin(self).await?;
        dead_letters::look(&mut act, actor, partition, position).await?;
        let discarded =
            dead_letters::discard_all(&mut act, self, partition, &[position], reason).await?;
        let detail = json!({"reason": reason});
        dead_letters::finish(
            act, actor, "discard", partition, position, detail, discarded,
        )
        .await
    }

    async fn retry_delivery_now(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
    ) -> Result<(), AdminError> {
        retry_now(self, actor, partition, position).await
    }
}

/// Where the next page begins: after the last delivery of a full page, or after the last row that
/// was searched, if the search ended at its limit. `first` is the first row of the page.
fn next(full: Option<&Delivery>, first: Option<&Row>, look: i64) -> Option<DeliveryCursor> {
    if let Some(last) = full {
        return Some(DeliveryCursor {
            position: last.position,
            partition: last.partition.clone(),
        });
    }
    let row = first.filter(|row| row.get::<_, i64>("looked") == look)?;
    Some(DeliveryCursor {
        position: row.get("end_position"),
        partition: row.get("end_destination"),
    })
}

fn delivery(row: &Row) -> Delivery {
    Delivery {
        destination: destination_of(row.get("destination")).to_owned(),
        partition: row.get("destination"),
        position: row.get("position"),
        state: row.get("state"),
        attempts: row.get::<_, i32>("attempt").unsigned_abs(),
        next_at: row.get::<_, Moment>("next_at").0,
        order_key: row.get("order_key"),
        last_error: row.get("last_error"),
        changed_at: row.get::<_, Moment>("changed_at").0,
        reason: row.get("reason"),
        event_id: row.get("event_id"),
        kind: row.get("type"),
        tenant: row.get("tenant"),
        aggregate_type: row.get("aggregate_type"),
        aggregate_id: row.get("aggregate_id"),
        created_at: row.get::<_, Moment>("created_at").0,
    }
}
