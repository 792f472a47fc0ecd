//! A receiver of webhooks that applies each message once, however often it is delivered: the row of
//! the inbox and the effect are one commit.
//!
//! ```sh
//! cargo run -p inbox-consumer -- whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
//! ```
//!
//! Messages are signed as Standard Webhooks and sent to `POST /webhooks/bank`; `GET /balance` is the
//! sum of their amounts. A repeated message receives 200 and `Idempotency-Status: replayed`.

use std::{env, error::Error};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use hapax::{Clock, Random, signature::Verifier};
use hapax_http::{Json, Problem, Tx, WebhookLayer};
use hapax_sqlite::Sqlite;
use serde_json::Value;

async fn take(
    mut tx: Tx<hapax_sqlite::Tx>,
    Json(message): Json<Value>,
) -> Result<StatusCode, Problem> {
    let amount = message["data"]["amount"].as_i64();
    tx.with(move |rows| rows.execute("INSERT INTO payment (amount) VALUES (?1)", [amount]))
        .await?;
    Ok(StatusCode::OK)
}

async fn balance(State(store): State<Sqlite>) -> Result<String, Problem> {
    let sql = "SELECT CAST(coalesce(sum(amount), 0) AS TEXT) FROM payment";
    let read = store.read(move |rows| rows.query_row(sql, [], |row| row.get(0)));
    Ok(read.await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let secret = args.next().ok_or("give the signing secret")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3001".into());

    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_sqlite::Settings::new("payments.db", clock.clone(), random.clone());
    let store = Sqlite::open(settings)?;
    let table = "CREATE TABLE payment (amount INTEGER NOT NULL)";
    store.migrate("payments", &[(1, "payments", table)]).await?;

    let bank: Verifier = secret.parse()?;
    let sources = move |source: &str| (source == "bank").then(|| vec![bank.clone()]);
    let layer = WebhookLayer::new(store.clone(), clock, random, "payments", sources);
    let router = Router::new()
        // `take` touches nothing but its transaction. On PostgreSQL it would start before its
        // message is accepted, which saves a round trip; on SQLite, acceptance has none.
        .route("/webhooks/{source}", post(layer.transaction(take)))
        .route("/balance", get(balance))
        .with_state(store);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    Ok(axum::serve(listener, router).await?)
}
