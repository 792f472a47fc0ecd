//! Reference service with a bare transaction: begin, insert, commit, each awaited before the next.
//!
//! This is the cost of a handler with one statement that opens a transaction.

use axum::{
    Json,
    routing::{MethodRouter, post},
};
use deadpool_postgres::Pool;

use super::{ORDER_INSERT, Order, Stated, answered};
use crate::serve::answer::Answer;

/// The route that writes an order.
pub(super) fn orders(pool: Pool, answer: Answer) -> MethodRouter {
    post(move |Json(stated): Json<Stated>| {
        let (pool, answer) = (pool.clone(), answer.clone());
        async move { answered(in_turn(&pool, &Order::of(stated)).await, &answer) }
    })
}

async fn in_turn(pool: &Pool, order: &Order) -> anyhow::Result<()> {
    let mut client = pool.get().await?;
    let insert = client.prepare_cached(ORDER_INSERT).await?;
    let tx = client.transaction().await?;
    tx.execute(&insert, &order.row()).await?;
    tx.commit().await?;
    Ok(())
}
