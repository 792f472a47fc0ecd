//! Polling endpoints on SQLite: their rows, where one starts, and what a purge has taken.
//!
//! Positions are in commit order, so a frontier is one number. A position above the last one that the
//! file contains was read in a later state of it: a backup was restored.

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
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::{
    delivery::start,
    error::{corrupt, store_error},
    outbox, query,
    sqlite::Sqlite,
    writer::WriterContext,
};

/// Events that are read on either side of a point in time to find one that was created about then.
const LOOK_NEAR: i64 = 20_000;

impl PollStore for Sqlite {
    async fn find_endpoint(&self, name: &str) -> Result<Option<Endpoint>, StoreError> {
        let (name, now) = (name.to_owned(), self.clock().now().as_millis());
        let find = move |conn: &Connection| {
            let mut find = conn.prepare_cached(query!("poll/find"))?;
            find.query_row(params![name, now], StoredEndpoint::of)
                .optional()
        };
        let found = self.read(find).await?;
        found.map(StoredEndpoint::read).transpose()
    }

    async fn find_endpoint_by_token(
        &self,
        token: &TokenHash,
    ) -> Result<Option<Endpoint>, StoreError> {
        let (token, now) = (*token.as_bytes(), self.clock().now().as_millis());
        let find = move |conn: &Connection| {
            let mut find = conn.prepare_cached(query!("poll/find_by_token"))?;
            find.query_row(params![token, now], StoredEndpoint::of)
                .optional()
        };
        let found = self.read(find).await?;
        found.map(StoredEndpoint::read).transpose()
    }

    async fn find_event(
        &self,
        tenant: Option<&Tenant>,
        id: EventId,
        position: Option<i64>,
    ) -> Result<Option<Arc<OutboxEvent>>, StoreError> {
        let (tenant, keyring) = (tenant.cloned(), self.keyring().clone());
        let find = move |conn: &Connection| {
            let tenant = tenant.as_ref().map(Tenant::as_str);
            let read = |row: &Row<'_>| Ok(outbox::event(row, &keyring));
            let find = || {
                if let Some(position) = position {
                    let mut find = conn.prepare_cached(query!("admin/event"))?;
                    return find.query_row(params![position, tenant], read).optional();
                }
                let middle = start::id_at(conn, id.time())?;
                let mut find = conn.prepare_cached(query!("admin/find_event_near"))?;
                let params = params![id.to_string(), middle, LOOK_NEAR, tenant];
                find.query_row(params, read).optional()
            };
            find().map_err(store_error)?.transpose()
        };
        let found = self.look(find).await?;
        Ok(found.filter(|it| it.event.id == id))
    }

    async fn start_frontier(&self, start: Start) -> Result<Frontier, StoreError> {
        let high = self.read(move |conn| started(conn, start)).await?;
        Ok(frontier(high))
    }

    async fn move_committed(&self, endpoint: &Endpoint, to: &Frontier) -> Result<bool, StoreError> {
        let (name, secret) = (endpoint.name.clone(), *endpoint.secret.as_bytes());
        let (from, to) = (endpoint.committed.high, to.high);
        let move_to = move |ctx: &mut WriterContext| {
            check_history(&ctx.conn, to)?;
            let update = || {
                let now = ctx.now().as_millis();
                let mut update = ctx.conn.prepare_cached(query!("poll/move"))?;
                update.execute(params![name, secret, to, from, now])
            };
            Ok(update().map_err(store_error)? > 0)
        };
        self.submit(move_to).await
    }

    async fn is_purged(&self, frontier: &Frontier) -> Result<bool, StoreError> {
        let high = frontier.high;
        let look = move |conn: &Connection| {
            check_history(conn, high)?;
            let look = || {
                let mut is_purged = conn.prepare_cached(query!("poll/is_purged"))?;
                is_purged.query_row([high], |row| row.get("is_purged"))
            };
            look().map_err(store_error)
        };
        self.look(look).await
    }

    fn compare_frontiers(
        &self,
        one: &Frontier,
        other: &Frontier,
    ) -> Result<Option<Ordering>, StoreError> {
        Ok(Some(one.high.cmp(&other.high)))
    }

    async fn note_poll(&self, endpoint: &Endpoint) -> Result<(), StoreError> {
        let (name, secret) = (endpoint.name.clone(), *endpoint.secret.as_bytes());
        let note = move |ctx: &mut WriterContext| {
            let update = || {
                let now = ctx.now().as_millis();
                let mut update = ctx.conn.prepare_cached(query!("poll/note"))?;
                update.execute(params![name, secret, now])
            };
            update().map(drop).map_err(store_error)
        };
        self.submit(note).await
    }
}

/// The position after which a consumer starts.
pub(crate) fn started(conn: &Connection, start: Start) -> rusqlite::Result<i64> {
    match start {
        Start::Beginning => {
            let mut purged = conn.prepare_cached(query!("poll/purged"))?;
            purged.query_row([], |row| row.get("last"))
        }
        Start::Now => start::last(conn),
        Start::At(time) => start::before(conn, time),
    }
}

/// Checks that a position was used in this state of the file.
fn check_history(conn: &Connection, position: i64) -> Result<(), StoreError> {
    let last = start::last(conn).map_err(store_error)?;
    if position <= last {
        return Ok(());
    }
    let what = format!("its last position is {last}, but {position} was read");
    Err(StoreError::SetBack { what })
}

fn frontier(high: i64) -> Frontier {
    Frontier {
        high,
        snapshot: None,
    }
}

/// The columns of an endpoint.
struct StoredEndpoint {
    name: String,
    tenant: Option<String>,
    types: String,
    token: [u8; 32],
    /// The hashes, one after the other.
    old_tokens: Vec<u8>,
    secret: [u8; 32],
    frontier: i64,
}

impl StoredEndpoint {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            tenant: row.get("tenant")?,
            types: row.get("types")?,
            token: row.get("token")?,
            old_tokens: row.get("old_tokens")?,
            secret: row.get("secret")?,
            frontier: row.get("frontier")?,
        })
    }

    fn read(self) -> Result<Endpoint, StoreError> {
        let name = self.name;
        let bad = |what: &str| corrupt(format!("polling endpoint {name}: {what}"));
        let tenant = self.tenant.map(Tenant::new).transpose();
        let tenant = tenant.map_err(|error| bad(&error.to_string()))?;
        let types: Vec<String> =
            serde_json::from_str(&self.types).map_err(|_| bad("its types are not JSON"))?;
        let (old_tokens, []) = self.old_tokens.as_chunks::<32>() else {
            return Err(bad("a previous token is not a hash"));
        };
        let old_tokens = old_tokens.iter().copied().map(TokenHash::from_bytes);
        Ok(Endpoint {
            name,
            tenant,
            patterns: types.into_iter().map(Pattern::new).collect(),
            token: TokenHash::from_bytes(self.token),
            old_tokens: old_tokens.collect(),
            secret: CursorSecret::from_bytes(self.secret),
            committed: frontier(self.frontier),
        })
    }
}
