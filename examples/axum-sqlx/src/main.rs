//! A service whose POST can be retried, at any of its instances, and whose handlers use sqlx: the
//! note, its event, its key and its response are one commit in PostgreSQL.
//!
//! ```sh
//! cargo run -p axum-sqlx -- postgres://postgres@127.0.0.1/test 127.0.0.1:3000
//! curl -i http://127.0.0.1:3000/notes -H 'Idempotency-Key: note-1' -d 'hello'
//! ```

use std::{env, error::Error};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use hapax::{Clock, Random, event::NewEvent, key::Tenant};
use hapax_http::{Idempotency, Problem, Tx};
use hapax_postgres::{
    Postgres,
    adapter::sqlx::{SqlxStore, SqlxTx, store_error},
};
use sqlx::PgPool;

async fn create(mut tx: Tx<SqlxTx>, text: String) -> Result<StatusCode, Problem> {
    let insert = sqlx::query("INSERT INTO note (text) VALUES ($1)").bind(&text);
    insert.execute(&mut **tx).await.map_err(store_error)?;
    tx.emit(NewEvent::json("note.created", &text))?;
    Ok(StatusCode::CREATED)
}

async fn list(State(pool): State<PgPool>) -> Result<String, Problem> {
    let sql = "SELECT coalesce(string_agg(text, E'\\n' ORDER BY id), '') FROM note";
    let notes = sqlx::query_scalar(sql).fetch_one(&pool).await;
    Ok(notes.map_err(store_error)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let database = args.next().ok_or("usage: axum-sqlx DATABASE [ADDRESS]")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".into());

    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_postgres::Settings::new(&database, clock.clone(), random.clone());
    let store = Postgres::open(settings).await?;
    let table = "CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY, text text NOT NULL)";
    store.migrate("notes", &[(1, "notes", table)]).await?;
    let pool = PgPool::connect(&database).await?;

    let mut settings = hapax_http::Settings::new(clock, random);
    settings.tenant = Some(Tenant::new("me")?); // one user; otherwise authentication sets the tenant
    let idempotency = Idempotency::new(SqlxStore::new(store, pool.clone()), settings);
    let layer = idempotency.operation("/notes");
    let notes = post(create).layer(layer).get(list);
    let router = Router::new().route("/notes", notes).with_state(pool);

    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
