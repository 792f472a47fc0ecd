//! Deliveries that have a row: parked, dead, or finished after they were parked.
//!
//! An event that was delivered at the first attempt has no such row; its trace shows that attempt.

use async_trait::async_trait;
use hapax::admin::{
    Actor, AdminError, Delivery, DeliveryAdmin, DeliveryCursor, DeliveryFilter, DeliveryStates,
    EventFilter, PAGE_MAX, Page, check_reason, destination_of, patched_members, read_cursor,
};
use rusqlite::{Row, params};
use serde_json::json;

use super::{
    dead_letters::{self, Bounds},
    declared::moment,
    destinations::opened,
    filters::Filters,
    handle::SqliteAdmin,
    newest::Newest,
    retry::retry_now,
    seen::Seen,
    view::View,
};
use crate::query;

/// Rows that one page visits.
const LOOK: usize = 2_000;

#[async_trait]
impl DeliveryAdmin for SqliteAdmin {
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
        let listing = Listing {
            find,
            wanted,
            destination: filter.destination.clone(),
            before: read_cursor(before, |text| text.parse().ok())?,
            limit: limit.clamp(1, PAGE_MAX),
        };
        self.read(move |view| listing.page(view)).await
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
        let (destination, seen) = (destination.to_owned(), seen.to_owned());
        let count = move |view: &View<'_>| {
            let seen = Seen::read(view, &seen)?;
            let bounds = Bounds::of(&seen);
            let mut count = 0;
            for partition in opened(view, Some(&destination))? {
                count += dead_letters::count(view, &find, &partition.name, bounds)?;
            }
            Ok(count)
        };
        self.read(count).await
    }

    async fn replay_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
    ) -> Result<(), AdminError> {
        let (actor, partition) = (actor.clone(), partition.to_owned());
        self.change_or_refuse(move |act| {
            dead_letters::look(act, &actor, &partition, position)?;
            let replayed = dead_letters::replay_all(act, &partition, &[position])?;
            let letter = (partition.as_str(), position);
            dead_letters::finish(act, &actor, "replay", letter, &json!({}), replayed)
        })
        .await
    }

    async fn edit_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        patch: &str,
    ) -> Result<(), AdminError> {
        let (actor, partition) = (actor.clone(), partition.to_owned());
        let patch = patch.to_owned();
        self.change_or_refuse(move |act| {
            dead_letters::look(act, &actor, &partition, position)?;
            let mut replayed = 0;
            if let Some(edited) = dead_letters::edited(act, &partition, position, &patch)? {
                let params = params![partition, position, edited.payload(), edited.headers];
                act.execute(query!("admin/edit"), params)?;
                replayed = dead_letters::replay_all(act, &partition, &[position])?;
            }
            let detail = json!({"members": patched_members(&patch)});
            let letter = (partition.as_str(), position);
            dead_letters::finish(act, &actor, "edit", letter, &detail, replayed)
        })
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

    async fn discard_dead_letter(
        &self,
        actor: &Actor,
        partition: &str,
        position: i64,
        reason: &str,
    ) -> Result<(), AdminError> {
        check_reason(reason)?;
        let (actor, partition) = (actor.clone(), partition.to_owned());
        let reason = reason.to_owned();
        self.change_or_refuse(move |act| {
            dead_letters::look(act, &actor, &partition, position)?;
            let discarded = dead_letters::discard_all(act, &partition, &[position], &reason)?;
            let detail = json!({"reason": reason});
            let letter = (partition.as_str(), position);
            dead_letters::finish(act, &actor, "discard", letter, &detail, discarded)
        })
        .await
    }
}

/// A page of deliveries.
struct Listing {
    find: Filters,
    wanted: DeliveryStates,
    destination: Option<String>,
    before: Option<DeliveryCursor>,
    limit: usize,
}

impl Listing {
    fn page(&self, view: &View<'_>) -> Result<Page<Delivery>, AdminError> {
        let partitions = opened(view, self.destination.as_deref())?;
        let mut newest = Newest::of(view, self.wanted.index, self.before.as_ref());
        newest.prepare(&partitions)?;
        let (mut items, mut looked) = (Vec::new(), 0);
        let mut end = None;
        newest.visit(|place| {
            looked += 1;
            items.extend(self.delivery(view, &place)?);
            let is_over = items.len() == self.limit || looked == LOOK.max(self.limit);
            end = is_over.then_some(place);
            Ok(!is_over)
        })?;
        let next = end.map(|end| end.to_string());
        Ok(Page { items, next })
    }

    /// The delivery at a place, if it matches.
    fn delivery(
        &self,
        view: &View<'_>,
        place: &DeliveryCursor,
    ) -> Result<Option<Delivery>, AdminError> {
        let read = |row: &Row<'_>| {
            let state = row.get_ref("state")?.as_str()?;
            let is_wanted = self.wanted.states.iter().any(|it| it.as_str() == state);
            let fits = is_wanted && self.find.event(row)? && self.find.delivery(row)?;
            if fits {
                delivery(row).map(Some)
            } else {
                Ok(None)
            }
        };
        let params = params![place.partition, place.position];
        Ok(view
            .first(query!("admin/delivery_of"), params, read)?
            .flatten())
    }
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let partition: String = row.get("destination")?;
    Ok(Delivery {
        destination: destination_of(&partition).to_owned(),
        partition,
        position: row.get("position")?,
        state: row.get("state")?,
        attempts: row.get("attempt")?,
        next_at: moment(row, "next_at")?,
        order_key: row.get("order_key")?,
        last_error: row.get("last_error")?,
        changed_at: moment(row, "changed_at")?,
        reason: row.get("reason")?,
        event_id: row.get("event_id")?,
        kind: row.get("type")?,
        tenant: row.get("tenant")?,
        aggregate_type: row.get("aggregate_type")?,
        aggregate_id: row.get("aggregate_id")?,
        created_at: moment(row, "created_at")?,
    })
}
