//! A service whose POST can be retried: the note, its event, its key and its response are one
//! commit in SQLite.
//!
//! ```sh
//! cargo run -p axum-sqlite
//! curl -i http://127.0.0.1:3000/notes -H 'Idempotency-Key: note-1' -d 'hello'
//! ```
//!
//! Send the request again: the response is the same, and there is one note.

use std::{env, error::Error};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use hapax::{Clock, Random, event::NewEvent, key::Tenant};
use hapax_http::{Idempotency, Problem, Tx};
use hapax_sqlite::Sqlite;

async fn create(mut tx: Tx<hapax_sqlite::Tx>, text: String) -> Result<StatusCode, Problem> {
    let event = NewEvent::json("note.created", &text);
    tx.with(move |rows| rows.execute("INSERT INTO note (text) VALUES (?1)", [text]))
        .await?;
    tx.emit(event)?;
    Ok(StatusCode::CREATED)
}

async fn list(State(store): State<Sqlite>) -> Result<String, Problem> {
    let sql = "SELECT coalesce(group_concat(text, char(10)), '') FROM note";
    Ok(store
        .read(move |rows| rows.query_row(sql, [], |row| row.get(0)))
        .await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:3000".into());

    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_sqlite::Settings::new("notes.db", clock.clone(), random.clone());
    let store = Sqlite::open(settings)?;
    let table = "CREATE TABLE note (text TEXT NOT NULL)";
    store.migrate("notes", &[(1, "notes", table)]).await?;

    let mut settings = hapax_http::Settings::new(clock, random);
    settings.tenant = Some(Tenant::new("me")?); // one user; otherwise authentication sets the tenant
    let idempotency = Idempotency::new(store.clone(), settings);
    let notes = post(create)
        .layer(idempotency.operation("/notes"))
        .get(list);
    let router = Router::new().route("/notes", notes).with_state(store);

    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
