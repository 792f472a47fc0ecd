//! Sources of timelines: the key of a request, its events, and the inbox messages and
//! sagas that resulted from them in this database.
//!
//! The number of a transaction is its id. The row of an event contains all of it, and the row of a
//! key only the low half, in its `xmin`.

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{Actor, AdminError, FoundKey, MatchingEvents, Message, RequestSeek, TimelineSource},
};

use super::{events, inbox, keys};
use crate::{
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

/// Mask for the half of a transaction's id that a row's `xmin` contains.
const LOW: i64 = 0xffff_ffff;
/// Events that one query reads. This takes some tens of milliseconds.
const LOOK: i64 = 20_000;
/// Consumers and sources that are shown for each event.
const TAKEN: usize = 100;
/// Sagas that one query reads.
const LOOK_SAGAS: i64 = 2_000;

#[async_trait]
impl TimelineSource for Postgres {
    async fn transaction_of(&self, position: i64) -> Result<i64, AdminError> {
        let wrote = self
            .ask(query!("admin/transaction_of"), &[&position])
            .await?;
        Ok(wrote.first().map_or(0, |row| row.get(0)))
    }

    fn in_key(&self, transaction: i64) -> i64 {
        transaction & LOW
    }

    async fn found_key(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        operation: Option<&str>,
        key: &str,
    ) -> Result<FoundKey, AdminError> {
        let found = keys::one(self, actor, tenant, operation, key).await?;
        Ok(FoundKey {
            record: found.record,
            transaction: found.version.transaction,
            at: found.at,
        })
    }

    async fn matching_events(
        &self,
        actor: &Actor,
        seek: &RequestSeek,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<MatchingEvents, AdminError> {
        let low = events::id_at(self, Moment(from)).await?;
        let high = events::id_at(self, Moment(until)).await?;
        let (tenant, count) = (actor.tenant(), rows(RequestSeek::EVENTS + 1));
        let params: [&dyn Param; 7] = [
            &low,
            &high,
            &LOOK,
            &seek.hash,
            &seek.transaction,
            &tenant,
            &count,
        ];
        let looked = self.ask(query!("admin/events_of"), &params).await?;
        let mut matching = MatchingEvents::default();
        if looked
            .first()
            .is_some_and(|row| row.get::<_, i64>("looked") >= LOOK)
        {
            matching.cut();
        }
        for row in looked
            .iter()
            .filter(|row| row.get::<_, Option<i64>>(0).is_some())
        {
            let (event, wrote) = (outbox::shown(row, self.keyring())?, row.get("transaction"));
            matching.event(seek, event, wrote, self.in_key(wrote));
        }
        Ok(matching)
    }

    async fn sagas_with(
        &self,
        actor: &Actor,
        text: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<String>, AdminError> {
        let (from, until) = (Moment(from), Moment(until));
        let (tenant, count) = (actor.tenant(), rows(RequestSeek::SAGAS));
        let params: [&dyn Param; 6] = [&from, &until, &text, &tenant, &LOOK_SAGAS, &count];
        let found = self.ask(query!("admin/sagas_of"), &params).await?;
        Ok(found.iter().map(|row| row.get(0)).collect())
    }

    async fn messages_with(&self, ids: Vec<String>) -> Result<Vec<Message>, AdminError> {
        Ok(inbox::taken(self, ids, None, None, TAKEN).await?)
    }
}
