//! Sources of timelines: the key of a request, its events, and the inbox messages and
//! sagas that resulted from them in this database.
//!
//! The number of a transaction is the position of its first event.

use std::ops::ControlFlow;

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, FoundKey, MatchingEvents, Message, MessageFilter, RequestSeek,
        TimelineSource,
    },
};
use rusqlite::params;

use super::{events::id_at, handle::SqliteAdmin, inbox, keys, view::View};
use crate::{outbox, query, value::rows};

/// Events that one query reads. This takes some tens of milliseconds.
const LOOK: usize = 10_000;
/// Bytes of payloads beyond which a query reads no further event: what follows a payload in its row
/// is found by reading all pages of the payload.
const LOOK_BYTES: u64 = 64 * 1024 * 1024;
/// Consumers and sources that are shown for each event.
const TAKEN: usize = 100;
/// Sagas that one query reads.
const LOOK_SAGAS: usize = 2_000;

#[async_trait]
impl TimelineSource for SqliteAdmin {
    async fn transaction_of(&self, position: i64) -> Result<i64, AdminError> {
        let find = move |view: &View<'_>| {
            view.first(query!("admin/transaction_of"), [position], |row| row.get(0))
        };
        Ok(self.read(find).await?.unwrap_or(0))
    }

    async fn found_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<FoundKey, AdminError> {
        keys::one(self, actor, tenant, operation, key).await
    }

    async fn matching_events(
        &self,
        actor: &Actor,
        seek: &RequestSeek,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<MatchingEvents, AdminError> {
        let (tenant, seek) = (actor.tenant().map(str::to_owned), seek.clone());
        let find = move |view: &View<'_>| {
            let (low, high) = (id_at(view, from)?, id_at(view, until)?);
            matching(view, &seek, (low, high), tenant.as_deref())
        };
        self.read(find).await
    }

    async fn sagas_with(
        &self,
        actor: &Actor,
        text: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<String>, AdminError> {
        let (tenant, text) = (actor.tenant().map(str::to_owned), text.to_owned());
        let find = move |view: &View<'_>| {
            let (from, until) = (from.as_millis(), until.as_millis());
            let (look, bound) = (rows(LOOK_SAGAS), rows(RequestSeek::SAGAS));
            let params = params![from, until, text, tenant, look, bound];
            view.list(query!("admin/sagas_of"), params, |row| row.get(0))
        };
        self.read(find).await
    }

    async fn messages_with(&self, ids: Vec<String>) -> Result<Vec<Message>, AdminError> {
        let find = move |view: &View<'_>| -> Result<Vec<Message>, AdminError> {
            let (mut all, any) = (Vec::new(), MessageFilter::default());
            for id in &ids {
                all.append(&mut inbox::taken(view, id, &any, TAKEN)?);
            }
            Ok(all)
        };
        self.read(find).await
    }
}

/// Reads the events between two positions that may belong to a request.
fn matching(
    view: &View<'_>,
    seek: &RequestSeek,
    (low, high): (i64, i64),
    tenant: Option<&str>,
) -> Result<MatchingEvents, AdminError> {
    let (mut found, mut is_cut, mut looked, mut bytes) = (Vec::new(), false, 0, 0_u64);
    let params = params![low, high, seek.hash, seek.transaction, tenant];
    view.visit(query!("admin/events_of"), params, |row| {
        looked += 1;
        bytes += row.get::<_, i64>("payload_bytes")?.unsigned_abs();
        if row.get("fits")? {
            let wrote: i64 = row.get("wrote")?;
            found.push((outbox::shown(row, view.keyring), wrote));
        }
        is_cut = looked == LOOK || bytes >= LOOK_BYTES;
        Ok(if is_cut || found.len() > RequestSeek::EVENTS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    let mut matching = MatchingEvents::default();
    if is_cut {
        matching.cut();
    }
    for (event, wrote) in found {
        matching.event(seek, event?, wrote, wrote);
    }
    Ok(matching)
}
