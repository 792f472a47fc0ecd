//! Orders with axum-idempotent, as in the example of its documentation.
//!
//! The documentation requires a session: the layer stores a response only for a request that has
//! one, and never creates one. `POST /session` creates it, as a sign-in would. The layer requires
//! the header, so it is on `POST /orders` only.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::{
    CookieOptions, Session, SessionLayer,
    store::{Ttl, moka::MokaStore},
};
use serde::{Deserialize, Serialize};
use tower_cookies::CookieManagerLayer;

#[derive(Clone, Deserialize)]
struct NewOrder {
    amount: i64,
}

#[derive(Clone, Serialize)]
struct Order {
    id: usize,
    amount: i64,
}

type Orders = Arc<Mutex<Vec<Order>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(MokaStore::builder().build());
    let idempotent_options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(60 * 5);
    let cookie_options = CookieOptions::build().name("session").path("/");

    let idempotent = Router::new()
        .route("/orders", post(create_order))
        .layer(IdempotentLayer::<MokaStore>::new(idempotent_options));
    let app = Router::new()
        .route("/orders", get(list_orders))
        .route("/session", post(create_session))
        .merge(idempotent)
        .layer(SessionLayer::new(store).with_cookie_options(cookie_options))
        .layer(CookieManagerLayer::new())
        .with_state(Orders::default());

    let port = std::env::var("PORT")?;
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn create_session(session: Session<MokaStore>) -> StatusCode {
    let hour = Ttl::new(3600).expect("an hour is a valid time");
    match session.set("user", &"alice", hour, None).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn create_order(
    State(orders): State<Orders>,
    Json(new): Json<NewOrder>,
) -> (StatusCode, Json<Order>) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    let order = Order {
        id: orders.len() + 1,
        amount: new.amount,
    };
    orders.push(order.clone());
    (StatusCode::CREATED, Json(order))
}

async fn list_orders(State(orders): State<Orders>) -> Json<Vec<Order>> {
    Json(
        orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    )
}
