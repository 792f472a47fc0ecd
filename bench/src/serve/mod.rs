//! The services that the shop is held against, each in a process of its own.
//!
//! They stand on the same axum and the same runtime as the shop, and answer `POST /orders` with
//! what the shop was heard to answer. `/readyz` says 200 once they serve.

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

/// Serves one of the references.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Where to listen
    #[arg(long)]
    listen: SocketAddr,
    /// The recorded answer: status line, headers and body
    #[arg(long)]
    answer: PathBuf,
    #[command(subcommand)]
    reference: Reference,
}

#[derive(Debug, clap::Subcommand)]
enum Reference {
    /// Answers the same thing always
    Constant,
    /// Reads the body of the answer from SQLite, by primary key
    Select(select::Flags),
    /// Writes one row to SQLite, in a commit of its own
    Insert(insert::Flags),
    /// Writes one row to PostgreSQL, in a commit of its own
    PostgresInsert(postgres::Flags),
    /// Begins, writes one row and commits, each in turn
    PostgresTransaction(postgres::Flags),
    /// Writes key, row, event and answer to PostgreSQL, each in turn
    PostgresNaive(postgres::Flags),
    /// The same on Hapax, with an arbitrary handler
    PostgresAtomic(postgres::Flags),
    /// The same, whose claim travels with its first statement
    PostgresRiding(postgres::Flags),
    /// Reads the body of the answer from PostgreSQL, by primary key
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
        use postgres::Kind;
        let orders = match self {
            Self::Constant => constant::orders(answer),
            Self::Select(flags) => flags.orders(answer)?,
            Self::Insert(flags) => flags.orders(answer)?,
            Self::PostgresInsert(flags) => flags.orders(Kind::Insert, answer).await?,
            Self::PostgresTransaction(flags) => flags.orders(Kind::Transaction, answer).await?,
            Self::PostgresNaive(flags) => flags.orders(Kind::Naive, answer).await?,
            Self::PostgresSelect(flags) => flags.orders(Kind::Select, answer).await?,
            Self::PostgresAtomic(flags) => return postgres::atomic(flags, answer, false).await,
            Self::PostgresRiding(flags) => return postgres::atomic(flags, answer, true).await,
        };
        Ok(Router::new().route("/orders", orders))
    }
}
