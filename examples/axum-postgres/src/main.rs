//! A service whose POST can be retried, at any of its instances: the note, its event, its key and
//! its response are one commit in PostgreSQL.
//!
//! ```sh
//! cargo run -p axum-postgres -- postgres://postgres@127.0.0.1/test 127.0.0.1:3000
//! curl -i http://127.0.0.1:3000/notes -H 'Idempotency-Key: note-1' -d 'hello'
//! ```
//!
//! Start a second instance on another port and send the request there: the response is the same,
//! and there is one note.

use std::{env, error::Error};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use hapax::{Clock, Random, event::NewEvent, key::Tenant};
use hapax_http::{Idempotency, Problem, Tx};
use hapax_postgres::Postgres;

async fn create(mut tx: Tx<hapax_postgres::Tx>, text: String) -> Result<StatusCode, Problem> {
    tx.execute("INSERT INTO note (text) VALUES ($1)", &[&text])
        .await?;
    tx.emit(NewEvent::json("note.created", &text))?;
    Ok(StatusCode::CREATED)
}

async fn list(State(store): State<Postgres>) -> Result<String, Problem> {
    let sql = "SELECT coalesce(string_agg(text, E'\\n' ORDER BY id), '') AS notes FROM note";
    let rows = store.read(sql, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| row.get::<_, String>("notes"))
        .collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let database = args
        .next()
        .ok_or("usage: axum-postgres DATABASE [ADDRESS]")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".into());

    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_postgres::Settings::new(database, clock.clone(), random.clone());
    let store = Postgres::open(settings).await?;
    let table = "CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY, text text NOT NULL)";
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
