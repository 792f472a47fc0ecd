//! Polling endpoints on PostgreSQL: their rows, where one starts, and what a purge has taken.
//!
//! The committed position of an endpoint is a frontier, like the checkpoint of a partition. It is
//! moved by a comparison with the position that was read, in one statement, which also refuses a
//! frontier of another history.

use std::{cmp::Ordering, sync::Arc};

use hapax::{
    delivery::{Frontier, Start},
    event::EventId,
    key::Tenant,
    outbox::OutboxEvent,
    poll::{CursorSecret, Endpoint, PollStore, TokenHash},
    relay::Pattern,
    store::StoreError,
};
use tokio_postgres::Row;

use crate::{
    delivery::start::columns,
    error::corrupt,
    frontier::Mark,
    outbox,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// Events that are read on either side of a point in time to find one that was created about then.
/// This takes some tens of milliseconds.
const LOOK_NEAR: i64 = 20_000;

impl PollStore for Postgres {
    async fn find_endpoint(&self, name: &str) -> Result<Option<Endpoint>, StoreError> {
        let time = self.time();
        let params: [&dyn Param; 2] = [&name, &time];
        let found = self.ask(query!("poll/find"), &params).await?;
        found.first().map(endpoint).transpose()
    }

    async fn find_endpoint_by_token(
        &self,
        token: &TokenHash,
    ) -> Result<Option<Endpoint>, StoreError> {
        let (hash, time) = (&token.as_bytes()[..], self.time());
        let params: [&dyn Param; 2] = [&hash, &time];
        let found = self.ask(query!("poll/find_by_token"), &params).await?;
        found.first().map(endpoint).transpose()
    }

    async fn find_event(
        &self,
        tenant: Option<&Tenant>,
        id: EventId,
        position: Option<i64>,
    ) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
        let tenant = tenant.map(Tenant::as_str);
        let found = if let Some(position) = position {
            let params: [&dyn Param; 2] = [&position, &tenant];
            self.ask(query!("admin/event"), &params).await?
        } else {
            let time = Moment(id.time());
            let middle = self.ask(query!("admin/id_at"), &[&time]).await?;
            let middle: i64 = middle.first().map_or(0, |row| row.get(0));
            let id = id.to_string();
            let params: [&dyn Param; 4] = [&id, &middle, &LOOK_NEAR, &tenant];
            self.ask(query!("admin/find_event_near"), &params).await?
        };
        let found = found.first().map(|row| outbox::event(row, self.keyring()));
        let found = found.transpose()?;
        // After a failover, another event may be at the position.
        Ok(found.filter(|it| it.event.id == id))
    }

    async fn start_frontier(&self, start: Start) -> Result<Frontier, StoreError> {
        let (word, time) = columns(start);
        let params: [&dyn Param; 2] = [&word, &time];
        let found = self.ask(query!("poll/start"), &params).await?;
        started(&found)
    }

    async fn move_committed(&self, endpoint: &Endpoint, to: &Frontier) -> Result<bool, StoreError> {
        let (name, secret) = (endpoint.name.as_str(), &endpoint.secret.as_bytes()[..]);
        let (from, time) = (&endpoint.committed, self.time());
        let (snapshot, from_snapshot) = (to.snapshot.as_deref(), from.snapshot.as_deref());
        let params: [&dyn Param; 7] = [
            &name,
            &secret,
            &to.high,
            &snapshot,
            &from.high,
            &from_snapshot,
            &time,
        ];
        let moved = self.commit(query!("poll/move"), &params).await?;
        let row = moved.first();
        let row = row.ok_or_else(|| corrupt("the query that moves a position returned no row"))?;
        if !row.get::<_, bool>("is_valid") {
            let what = "the position was read in another history than that of the database";
            return Err(StoreError::SetBack {
                what: what.to_owned(),
            });
        }
        Ok(row.get("is_moved"))
    }

    async fn is_purged(&self, frontier: &Frontier) -> Result<bool, StoreError> {
        let mark = Mark::of(frontier)?;
        let (before, floor) = mark.unread_below().unzip();
        let floor = floor.unwrap_or_default();
        let params: [&dyn Param; 3] = [&frontier.high, &before, &floor];
        let found = self.ask(query!("poll/is_purged"), &params).await?;
        Ok(found.first().is_some_and(|row| row.get("is_purged")))
    }

    fn compare_frontiers(
        &self,
        one: &Frontier,
        other: &Frontier,
    ) -> Result<Option<Ordering>, StoreError> {
        Ok(Mark::of(one)?.compare(&Mark::of(other)?))
    }

    async fn note_poll(&self, endpoint: &Endpoint) -> Result<(), StoreError> {
        let (name, secret) = (endpoint.name.as_str(), &endpoint.secret.as_bytes()[..]);
        let time = self.time();
        let params: [&dyn Param; 3] = [&name, &secret, &time];
        self.commit(query!("poll/note"), &params).await.map(drop)
    }
}

/// The frontier at which a consumer starts, from the row that says it.
pub(crate) fn started(found: &[Row]) -> Result<Frontier, StoreError> {
    let row = found.first();
    let row = row.ok_or_else(|| corrupt("the query for a start returned no row"))?;
    Ok(Frontier {
        high: row.get("frontier"),
        snapshot: row.get::<_, Option<String>>("snapshot").map(Into::into),
    })
}

/// Reads an endpoint from its row.
fn endpoint(row: &Row) -> Result<Endpoint, StoreError> {
    let name: String = row.get("name");
    let bad = |what: &str| corrupt(format!("polling endpoint {name}: {what}"));
    let hash = |bytes: &[u8], what: &str| <[u8; 32]>::try_from(bytes).map_err(|_| bad(what));
    let old_tokens: Vec<&[u8]> = row.get("old_tokens");
    let old_tokens = old_tokens
        .into_iter()
        .map(|it| hash(it, "old_tokens").map(TokenHash::from_bytes));
    let tenant: Option<&str> = row.get("tenant");
    let tenant = tenant.map(Tenant::new).transpose();
    let types: Vec<String> =
        serde_json::from_str(row.get("types")).map_err(|_| bad("its types are not JSON"))?;
    Ok(Endpoint {
        tenant: tenant.map_err(|error| bad(&error.to_string()))?,
        patterns: types.into_iter().map(Pattern::new).collect(),
        token: TokenHash::from_bytes(hash(row.get("token"), "token")?),
        old_tokens: old_tokens.collect::<Result<_, _>>()?,
        secret: CursorSecret::from_bytes(hash(row.get("secret"), "secret")?),
        committed: Frontier {
            high: row.get("frontier"),
            snapshot: row.get::<_, Option<String>>("snapshot").map(Into::into),
        },
        name,
    })
}
