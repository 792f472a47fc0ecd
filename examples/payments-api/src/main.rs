//! An API of orders, payments and e-mail addresses, whose requests may all be repeated.
//!
//! ```sh
//! cargo run -p payments-api -- 127.0.0.1:3000
//! curl -i http://127.0.0.1:3000/orders -H 'Content-Type: application/json' \
//!   -H 'Idempotency-Key: 8e03978e-40d5-43e8-bc93-6894a57f9324' \
//!   -d '{"customerId": "cus_123", "amount": 4200, "currency": "USD"}'
//! curl -i -X PUT http://127.0.0.1:3000/users/123/email -H 'Content-Type: application/json' \
//!   -d '{"email": "a@b.com"}'
//! ```
//!
//! Amounts are minor units of a currency. They are compared by value, so `4200.0` repeats `4200`.
//! Orders and payments need a key; an e-mail address is set, so it needs none.

use std::{env, error::Error};

use axum::{
    Router,
    http::{Method, StatusCode},
    routing::{post, put},
};
use hapax::{Clock, Random, event::NewEvent, key::Tenant};
use hapax_http::{FingerprintMode, Idempotency, Json, Path, Problem, Tx};
use hapax_sqlite::Sqlite;
use serde::{Deserialize, Serialize};

const TABLES: &str = "
    CREATE TABLE placed_order (
        id INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL, currency TEXT NOT NULL
    ) STRICT;
    CREATE TABLE payment (
        id INTEGER PRIMARY KEY, amount INTEGER NOT NULL, currency TEXT NOT NULL
    ) STRICT;
    CREATE TABLE user (id TEXT PRIMARY KEY, email TEXT NOT NULL) STRICT;";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewOrder {
    customer_id: String,
    amount: i64,
    currency: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPayment {
    #[serde(alias = "amountCents")]
    amount: i64,
    currency: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Email {
    email: String,
}

/// The response to a new order or payment, and its event.
#[derive(Debug, Serialize)]
struct Created {
    id: String,
    amount: i64,
    currency: String,
}

async fn order(
    mut tx: Tx<hapax_sqlite::Tx>,
    Json(new): Json<NewOrder>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    check(new.amount)?;
    let row = (new.customer_id, new.amount, new.currency.clone());
    let sql =
        "INSERT INTO placed_order (customer, amount, currency) VALUES (?1, ?2, ?3) RETURNING id";
    let id: i64 = tx
        .with(move |rows| rows.query_row(sql, row, |row| row.get(0)))
        .await?;
    let order = Created {
        id: format!("ord_{id}"),
        amount: new.amount,
        currency: new.currency,
    };
    tx.emit(NewEvent::json("order.created", &order).about("order", order.id.clone()))?;
    Ok((StatusCode::CREATED, Json(order)))
}

async fn pay(
    mut tx: Tx<hapax_sqlite::Tx>,
    Json(new): Json<NewPayment>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    check(new.amount)?;
    let row = (new.amount, new.currency.clone());
    let sql = "INSERT INTO payment (amount, currency) VALUES (?1, ?2) RETURNING id";
    let id: i64 = tx
        .with(move |rows| rows.query_row(sql, row, |row| row.get(0)))
        .await?;
    let payment = Created {
        id: format!("pay_{id}"),
        amount: new.amount,
        currency: new.currency,
    };
    tx.emit(NewEvent::json("payment.created", &payment).about("payment", payment.id.clone()))?;
    Ok((StatusCode::CREATED, Json(payment)))
}

async fn set_email(
    Path(id): Path<String>,
    mut tx: Tx<hapax_sqlite::Tx>,
    Json(stated): Json<Email>,
) -> Result<Json<Email>, Problem> {
    let row = (id.clone(), stated.email.clone());
    let sql = "INSERT INTO user (id, email) VALUES (?1, ?2)
               ON CONFLICT (id) DO UPDATE SET email = excluded.email
               WHERE user.email <> excluded.email";
    let changed = tx.with(move |rows| rows.execute(sql, row)).await?;
    if changed > 0 {
        tx.emit(NewEvent::json("user.email_changed", &stated).about("user", id))?;
    }
    Ok(Json(stated))
}

fn check(amount: i64) -> Result<(), Problem> {
    if amount > 0 {
        return Ok(());
    }
    Err(Problem::invalid(
        "amount",
        "amount must be a positive number of minor units",
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:3000".into());

    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_sqlite::Settings::new("payments.db", clock.clone(), random.clone());
    let store = Sqlite::open(settings)?;
    store
        .migrate("payments", &[(1, "payments", TABLES)])
        .await?;

    let mut settings = hapax_http::Settings::new(clock, random);
    settings.tenant = Some(Tenant::new("me")?); // one user; otherwise authentication sets the tenant
    let idempotency = Idempotency::new(store, settings);
    // `4200` and `4200.0` are the same amount.
    let mode = FingerprintMode::JsonSemantic;
    let operation = |template| idempotency.operation(template).fingerprint(mode);
    let email = idempotency.operation("/users/{id}/email");
    let email = email.also(Method::PUT).optional();
    let router = Router::new()
        .route("/orders", post(order).layer(operation("/orders")))
        .route("/payments", post(pay).layer(operation("/payments")))
        .route("/api/payments", post(pay).layer(operation("/api/payments")))
        .route("/users/{id}/email", put(set_email).layer(email));

    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
