//! `bench serve`: the reference services with which the shop is compared.
//!
//! Each runs as a separate process. They use the same axum and the same runtime as the shop, and
//! respond to `POST /orders` with a recorded response of the shop. `/readyz` returns 200 once they
//! serve.

mod answer;
mod constant;
mod select;
mod insert;
pub(crate) mod postgres;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use axum::{Router, routing, serve::ListenerExt as _};
use tokio::net::TcpListener;

use answer::Answer;

/// Runs one of the reference services.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// File with the recorded response: status line, headers and body
    #[arg(long)]
    answer: PathBuf,
    #[command(subcommand)]
    reference: Reference,
}

#[derive(Debug, clap::Subcommand)]
enum Reference {
    /// Always sends the same response
    Constant,
    /// Reads the body of the response from SQLite, by primary key
    Select(select::Flags),
    /// Writes one row to SQLite, with a commit for each request
    Insert(insert::Flags),
    /// Writes one row to PostgreSQL, with a commit for each request
    PostgresInsert(postgres::Flags),
    /// Begins, writes one row and commits, each in turn
    PostgresTransaction(postgres::Flags),
    /// Writes key, row, event and response to PostgreSQL, each in turn
    PostgresNaive(postgres::Flags),
    /// Does the same with Hapax, in an arbitrary handler
    PostgresAtomic(postgres::Flags),
    /// Does the same with Hapax, with a pipelined claim
    PostgresRiding(postgres::Flags),
    /// Does the same with Hapax, with an optimistic claim
    PostgresOptimistic(postgres::Flags),
    /// Reads the body of the response from PostgreSQL, by primary key
    PostgresSelect(postgres::Flags),
}

impl Flags {
    /// Serves until it is killed.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let answer = Answer::read(&self.answer)?;
        let ready = routing::get(|| async {});
        let router = self.reference.router(answer).await?;
        let router = router.route("/readyz", ready);
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.context("cannot serve")
    }
}

impl Reference {
    async fn router(self, answer: Answer) -> anyhow::Result<Router> {
        use postgres::{Claims, Kind};
        let orders = match self {
            Self::Constant => constant::orders(answer),
            Self::Select(flags) => flags.orders(answer)?,
            Self::Insert(flags) => flags.orders(answer)?,
            Self::PostgresInsert(flags) => flags.orders(Kind::Insert, answer).await?,
            Self::PostgresTransaction(flags) => flags.orders(Kind::Transaction, answer).await?,
            Self::PostgresNaive(flags) => flags.orders(Kind::Naive, answer).await?,
            Self::PostgresSelect(flags) => flags.orders(Kind::Select, answer).await?,
            Self::PostgresAtomic(flags) => {
                return postgres::atomic(flags, answer, Claims::First).await;
            }
            Self::PostgresRiding(flags) => {
                return postgres::atomic(flags, answer, Claims::Pipelined).await;
            }
            Self::PostgresOptimistic(flags) => {
                return postgres::atomic(flags, answer, Claims::Optimistic).await;
            }
        };
        Ok(Router::new().route("/orders", orders))
    }
}
