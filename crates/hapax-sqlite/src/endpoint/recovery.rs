//! Recovery of endpoints on SQLite: their probes, and what follows a probe that succeeds.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    Timestamp,
    endpoint::{ClaimedDelivery, EndpointRecovery},
    keyring::Keyring,
    limits::ENDPOINT_REPLAYED,
    operational::Occurrence,
    store::StoreError,
};
use rusqlite::{Connection, params};

use super::{RELAY, bump, change_by_relay, claim_one, execute, first_of, millis};
use crate::{
    error::store_error, operational::Emitter, query, sqlite::Sqlite, value::rows,
    writer::WriterContext,
};

#[async_trait]
impl EndpointRecovery for Sqlite {
    async fn claim_probes(
        &self,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let keyring = self.keyring().clone();
        self.submit(move |ctx| claim_probes(&ctx.conn, limit, lease, ctx.now(), &keyring))
            .await
    }

    async fn postpone_probe(
        &self,
        endpoint: &str,
        version: i64,
        waits: Option<(Duration, Duration)>,
    ) -> Result<(), StoreError> {
        let endpoint = endpoint.to_owned();
        let (first, longest) = waits
            .map(|(one, other)| (millis(one), millis(other)))
            .unzip();
        let postpone = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let params = params![endpoint, version, first, longest, now];
            let postponed = first_of(&ctx.conn, query!("endpoint/postpone_probe"), params, |_| {
                Ok(())
            });
            postponed.map(drop).map_err(store_error)
        };
        self.submit(postpone).await
    }

    async fn repeat_probe(&self, endpoint: &str, version: i64) -> Result<(), StoreError> {
        let endpoint = endpoint.to_owned();
        let repeat = move |ctx: &mut WriterContext| {
            let sql = query!("endpoint/repeat_probe");
            let params = params![endpoint, version, ctx.now().as_millis()];
            let repeated = first_of(&ctx.conn, sql, params, |_| Ok(()));
            repeated.map(drop).map_err(store_error)
        };
        self.submit(repeat).await
    }

    async fn recover_endpoint(
        &self,
        endpoint: &str,
        version: i64,
        in_order: bool,
    ) -> Result<bool, StoreError> {
        let (endpoint, emitter) = (endpoint.to_owned(), Emitter::of(self));
        let recover = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let tenant = recover(&ctx.conn, &endpoint, version, in_order, now);
            let Some(tenant) = tenant.map_err(store_error)? else {
                return Ok(false);
            };
            emitter.emit(
                ctx,
                vec![Occurrence::EndpointRecovered { endpoint, tenant }],
            )?;
            Ok(true)
        };
        self.submit(recover).await
    }

    async fn end_catch_up(&self, endpoint: &str) -> Result<bool, StoreError> {
        let endpoint = endpoint.to_owned();
        let end =
            move |ctx: &mut WriterContext| end_catch_up(&ctx.conn, &endpoint).map_err(store_error);
        self.submit(end).await
    }
}

/// Why a relay enables an endpoint, in the audit log.
const RECOVERED: &str = "it accepted a probe";

fn claim_probes(
    conn: &Connection,
    limit: usize,
    lease: Duration,
    now: Timestamp,
    keyring: &Keyring,
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    let due = due_probes(conn, limit, now, lease).map_err(store_error)?;
    let mut claimed = Vec::new();
    for (endpoint, delivery, has_any) in due {
        let until = has_any.then(|| now.after(lease).as_millis());
        let params = params![endpoint, until];
        execute(conn, query!("endpoint/lease_probe"), params).map_err(store_error)?;
        if let Some(id) = delivery {
            claimed.push(claim_one(conn, id, now, lease, keyring)?);
        }
    }
    Ok(claimed)
}

/// The endpoints that are due to be probed, each with the delivery that is sent, and whether it has any.
fn due_probes(
    conn: &Connection,
    limit: usize,
    now: Timestamp,
    lease: Duration,
) -> rusqlite::Result<Vec<(String, Option<i64>, bool)>> {
    let mut due = conn.prepare_cached(query!("endpoint/probe"))?;
    let params = params![rows(limit), now.as_millis(), now.after(lease).as_millis()];
    let due = due.query_map(params, |row| {
        Ok((
            row.get("endpoint")?,
            row.get("delivery")?,
            row.get("has_any")?,
        ))
    })?;
    due.collect()
}

/// Enables an endpoint that was disabled because it failed. Returns its tenant if it is enabled.
fn recover(
    conn: &Connection,
    endpoint: &str,
    version: i64,
    in_order: bool,
    now: i64,
) -> rusqlite::Result<Option<String>> {
    // If the endpoint is not enabled after all, it is disabled and nothing is claimed of it.
    if !in_order {
        let params = params![endpoint, rows(ENDPOINT_REPLAYED), now];
        execute(conn, query!("endpoint/release"), params)?;
    }
    let next = bump(conn)?;
    let params = params![endpoint, version, next, in_order, RELAY, now];
    let line = ("enable", endpoint, RECOVERED);
    change_by_relay(conn, query!("endpoint/recover"), params, line, now)
}

fn end_catch_up(conn: &Connection, endpoint: &str) -> rusqlite::Result<bool> {
    let drained = first_of(conn, query!("endpoint/is_drained"), [endpoint], |row| {
        row.get::<_, bool>("is_drained")
    })?;
    if !drained.unwrap_or(false) {
        return Ok(false);
    }
    let next = bump(conn)?;
    let ended = first_of(
        conn,
        query!("endpoint/end_catch_up"),
        params![endpoint, next],
        |_| Ok(()),
    )?;
    Ok(ended.is_some())
}
