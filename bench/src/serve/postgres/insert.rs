//! The simplest reference service: one bare INSERT, prepared, with a commit for each request.
//!
//! It has no key, no stored response and no event, so a retry creates a second order.

use axum::{
    Json,
    routing::{MethodRouter, post},
};
use deadpool_postgres::Pool;

use super::{ORDER_INSERT, Order, Stated, answered, run};
use crate::serve::answer::Answer;

/// The route that writes an order.
pub(super) fn orders(pool: Pool, answer: Answer) -> MethodRouter {
    post(move |Json(stated): Json<Stated>| {
        let (pool, answer) = (pool.clone(), answer.clone());
        async move { answered(insert(&pool, &Order::of(stated)).await, &answer) }
    })
}

async fn insert(pool: &Pool, order: &Order) -> anyhow::Result<()> {
    let client = pool.get().await?;
    run(&client, ORDER_INSERT, &order.row()).await?;
    Ok(())
}
