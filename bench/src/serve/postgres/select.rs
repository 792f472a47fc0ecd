//! Reference service for a replay without a cache: one primary-key SELECT per request.
//!
//! The table maps keys to bodies. A key that is missing is inserted before the response, so the
//! load generator fills the table with its first pass.

use axum::{
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use bytes::Bytes;
use deadpool_postgres::Pool;
use http::StatusCode;

use super::{failed, run};
use crate::serve::answer::Answer;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS answer (key text PRIMARY KEY, body bytea NOT NULL)";
const SELECT: &str = "SELECT body FROM answer WHERE key = $1";
const INSERT: &str = "INSERT INTO answer VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// The route that reads its response.
pub(super) async fn orders(pool: Pool, answer: Answer) -> anyhow::Result<MethodRouter> {
    pool.get().await?.batch_execute(TABLE).await?;
    Ok(post(move |headers: HeaderMap| {
        let (pool, answer) = (pool.clone(), answer.clone());
        async move { respond(&pool, &headers, &answer).await }
    }))
}

async fn respond(pool: &Pool, headers: &HeaderMap, answer: &Answer) -> Response {
    let key = headers.get("idempotency-key");
    let Some(key) = key.and_then(|key| key.to_str().ok()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match find_or_write(pool, key, answer).await {
        Ok(body) => answer.respond_with(body),
        Err(error) => failed(&error),
    }
}

async fn find_or_write(pool: &Pool, key: &str, answer: &Answer) -> anyhow::Result<Bytes> {
    let client = pool.get().await?;
    let select = client.prepare_cached(SELECT).await?;
    if let Some(row) = client.query_opt(&select, &[&key]).await? {
        return Ok(Bytes::from(row.try_get::<_, Vec<u8>>(0)?));
    }
    let body = answer.body().as_ref();
    run(&client, INSERT, &[&key, &body]).await?;
    Ok(answer.body().clone())
}
