//! The idempotent write as it is usually written by hand: six statements in turn.
//!
//! The statements are: begin, claim by inserting the key, insert the order, insert the event, store
//! the response, commit. The tables contain only what is needed, and have only a primary key each.

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use deadpool_postgres::Pool;
use http::StatusCode;

use super::{ORDER_INSERT, Order, Stated, TENANT, answered};
use crate::serve::answer::Answer;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS naive_key (
    tenant text NOT NULL, key text NOT NULL, fingerprint text NOT NULL, status smallint,
    body bytea, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant, key));
CREATE TABLE IF NOT EXISTS naive_event (
    id bigserial PRIMARY KEY, type text NOT NULL, aggregate_id text NOT NULL,
    payload text NOT NULL, created_at timestamptz NOT NULL DEFAULT now())";
const CLAIM: &str = "\
INSERT INTO naive_key (tenant, key, fingerprint) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const EMIT: &str = "\
INSERT INTO naive_event (type, aggregate_id, payload) VALUES ('order.created', $1, $2)";
const COMPLETE: &str = "UPDATE naive_key SET status = $3, body = $4 WHERE tenant = $1 AND key = $2";
/// A constant with the length of a fingerprint; it is never compared.
const FINGERPRINT: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// The route that writes an order.
pub(super) async fn orders(pool: Pool, answer: Answer) -> anyhow::Result<MethodRouter> {
    pool.get().await?.batch_execute(TABLES).await?;
    Ok(post(
        move |headers: HeaderMap, Json(stated): Json<Stated>| {
            let (pool, answer) = (pool.clone(), answer.clone());
            async move { respond(&pool, &headers, stated, &answer).await }
        },
    ))
}

async fn respond(pool: &Pool, headers: &HeaderMap, stated: Stated, answer: &Answer) -> Response {
    let key = headers.get("idempotency-key");
    match key.and_then(|key| key.to_str().ok()) {
        Some(key) => answered(in_turn(pool, key, &Order::of(stated), answer).await, answer),
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

async fn in_turn(pool: &Pool, key: &str, order: &Order, answer: &Answer) -> anyhow::Result<()> {
    let mut client = pool.get().await?;
    let claim = client.prepare_cached(CLAIM).await?;
    let insert = client.prepare_cached(ORDER_INSERT).await?;
    let emit = client.prepare_cached(EMIT).await?;
    let complete = client.prepare_cached(COMPLETE).await?;
    let body = answer.body().as_ref();
    let tx = client.transaction().await?;
    let claimed = tx.execute(&claim, &[&TENANT, &key, &FINGERPRINT]).await?;
    // The load generator sends a new key with each request.
    anyhow::ensure!(claimed == 1, "the key is already taken");
    tx.execute(&insert, &order.row()).await?;
    let payload = str::from_utf8(body)?;
    tx.execute(&emit, &[&order.id, &payload]).await?;
    tx.execute(&complete, &[&TENANT, &key, &201_i16, &body])
        .await?;
    tx.commit().await?;
    Ok(())
}
