//! The same shop in Rust: axum, with the layer of `hapax-http` on the same database.

use axum::{Router, response::IntoResponse, routing::post};
use hapax::{event::NewEvent, key::Tenant};
use hapax_http::{Idempotency, Json, Problem, Tx};
use hapax_postgres::Postgres;
use hapax_testkit::clock::{seeded_random, system_clock};
use http::{StatusCode, header::LOCATION};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::shop::TENANT;

const INSERT: &str = "INSERT INTO shop_order (id, tenant, item, amount)
    VALUES ('ord_' || gen_random_uuid(), $1, $2, $3) RETURNING id";

#[derive(Deserialize)]
struct NewOrder {
    item: String,
    amount: i64,
}

#[derive(Serialize)]
struct Order {
    id: String,
    item: String,
    amount: i64,
}

/// A shop that runs in a task. Dropping it ends the task.
pub(crate) struct AxumShop {
    pub(crate) url: String,
    serving: JoinHandle<()>,
}

impl AxumShop {
    pub(crate) async fn start(database: &str) -> Self {
        let (clock, random) = (system_clock(), seeded_random(1));
        let settings = hapax_postgres::Settings::new(database, clock.clone(), random.clone());
        let store = Postgres::open(settings).await.expect("the store opens");
        let mut settings = hapax_http::Settings::new(clock, random);
        settings.tenant = Some(Tenant::new(TENANT).expect("it is short"));
        let idempotency = Idempotency::new(store, settings);
        let create = post(create_order).layer(idempotency.operation("/orders"));
        let router = Router::new().route("/orders", create);
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let serving = tokio::spawn(async move {
            let served = axum::serve(listener, router).await;
            served.expect("the listener works");
        });
        Self {
            url: format!("http://{address}"),
            serving,
        }
    }
}

impl Drop for AxumShop {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn create_order(
    mut tx: Tx<hapax_postgres::Tx>,
    Json(order): Json<NewOrder>,
) -> Result<impl IntoResponse, Problem> {
    let NewOrder { item, amount } = order;
    let rows = tx.query(INSERT, &[&TENANT, &item, &amount]).await?;
    let id: String = rows[0].get("id");
    let location = format!("/orders/{id}");
    let order = Order { id, item, amount };
    tx.emit(NewEvent::json("order.created", &order).about("order", &order.id))?;
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(order)))
}
