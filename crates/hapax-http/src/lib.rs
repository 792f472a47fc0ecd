//! `Idempotency-Key` for any axum service: a tower layer in the handler's transaction.
//!
//! The client sends the same key with every attempt of a request. The layer claims the key in the
//! transaction in which the handler writes, so that the handler's rows, its events and its response
//! are one commit. Every retry receives the same response, byte for byte. The modules below are
//! declared in the order in which a request passes through them. The page "The HTTP contract"
//! specifies the behaviour.
//!
//! If an operation pipelines its claim ([`OperationLayer::claim_pipelined`]) and the key
//! is taken, the handler's first statement fails with
//! [`StoreError::NotClaimed`](hapax::store::StoreError::NotClaimed). This is not a failure: the
//! layer responds according to the state of the key, and neither logs nor counts an error. A
//! service that logs or counts the errors of its handlers should ignore those for which
//! `is_not_claimed` is true.
//!
//! A handler that touches nothing but its transaction may be started before its key is claimed
//! ([`OperationLayer::transaction`]), or before its message is accepted
//! ([`WebhookLayer::transaction`]). It may then run twice, and a run that does not commit is rolled
//! back.
//!
//! ```
//! use axum::{Router, extract::Request, middleware::{self, Next}, response::Response, routing::post};
//! use hapax::{Clock, Random, event::NewEvent, key::Tenant};
//! use hapax_http::{Idempotency, Json, Phased, WritePlan, Problem, RequestIds, Settings, Tx, problem};
//! use hapax_sqlite::{Sqlite, Statement};
//! use http::StatusCode;
//!
//! #[derive(serde::Deserialize, serde::Serialize)]
//! #[serde(deny_unknown_fields)]
//! struct Refund {
//!     charge_id: String,
//!     amount: i64,
//! }
//!
//! /// Atomic: the handler's rows, its events and its response are one commit.
//! async fn create_refund(
//!     mut tx: Tx<hapax_sqlite::Tx>,
//!     Json(refund): Json<Refund>,
//! ) -> Result<(StatusCode, Json<Refund>), Problem> {
//!     if refund.amount < 1 {
//!         return Err(Problem::invalid("amount", "must be at least 1"));
//!     }
//!     let row = (refund.charge_id.clone(), refund.amount);
//!     tx.with(|db| db.execute("INSERT INTO refund VALUES (?1, ?2)", row)).await?;
//!     tx.emit(NewEvent::json("refund.succeeded", &refund))?;
//!     Ok((StatusCode::CREATED, Json(refund)))
//! }
//!
//! /// Single-shot: the handler returns its writes as a plan, and writes nothing itself.
//! async fn create_note(Json(note): Json<String>) -> Result<WritePlan<Statement>, Problem> {
//!     let insert = Statement::new("INSERT INTO note VALUES (?1)", [note.clone().into()]);
//!     Ok(WritePlan::new(StatusCode::CREATED)
//!         .statement(insert)
//!         .emit(NewEvent::json("note.created", &note)))
//! }
//!
//! /// Phased: the handler calls a remote system, and commits its progress between calls.
//! async fn create_payment(
//!     mut phased: Phased<hapax_sqlite::Tx>,
//!     Json(amount): Json<i64>,
//! ) -> Result<(StatusCode, Json<String>), Problem> {
//!     // The same key on every attempt, so that the provider charges once.
//!     let charge = charge_at_the_provider(&phased.provider_key("charge"), amount).await;
//!     if phased.recovery_point().is_none() {
//!         let row = (charge.clone(), amount);
//!         let write = async |tx: &mut hapax_sqlite::Tx| {
//!             tx.with(|db| db.execute("INSERT INTO charge VALUES (?1, ?2)", row)).await
//!         };
//!         phased.phase("charged", write).await?;
//!     }
//!     Ok((StatusCode::CREATED, Json(charge)))
//! }
//! # async fn charge_at_the_provider(_: &str, _: i64) -> String { String::new() }
//!
//! /// Sets the tenant: the principal's stable id, never its credential.
//! async fn authenticate(mut request: Request, next: Next) -> Response {
//!     request.extensions_mut().insert(Tenant::new("alice").expect("it is short"));
//!     next.run(request).await
//! }
//!
//! fn service(store: Sqlite, clock: Clock, random: Random) -> Router {
//!     let idempotency = Idempotency::new(store, Settings::new(clock, random.clone()));
//!     let refunds = idempotency.operation("/refunds");
//!     let notes = idempotency.operation("/notes").single_shot();
//!     let payments = idempotency.operation("/payments").phased();
//!     Router::new()
//!         .route("/refunds", post(create_refund).layer(refunds))
//!         .route("/notes", post(create_note).layer(notes))
//!         .route("/payments", post(create_payment).layer(payments))
//!         .route("/idempotency-keys", post(idempotency.reserve_handler()))
//!         .fallback(problem::not_found)
//!         .layer(middleware::from_fn(authenticate))
//!         .layer(RequestIds::new(random))
//! }
//! # let _ = service;
//! ```

pub mod request_id;
mod rate_limit;
mod operation;
mod profile;
mod settings;
mod idempotency;
mod request;
pub mod header;
mod body;
mod content;
mod derived;
mod cache;
mod purges;
mod tx;
mod phased;
mod write_plan;
mod passed_on;
mod stored;
mod key_status;
mod trace;
mod inbox;
pub mod poll;
pub mod extract;
pub mod problem;
mod telemetry;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;

pub use derived::{Derived, View};
pub use extract::{Json, Path, Query};
pub use hapax::idempotency::Disposition;
pub use header::EXPOSED_HEADERS;
pub use idempotency::Idempotency;
pub use inbox::{DedupeKey, DedupeKeyError, Verified, WebhookLayer};
pub use operation::{OperationLayer, Protected};
pub use passed_on::{KeepInProgress, Verbatim};
pub use phased::{Completer, Phased};
pub use problem::{Code, ConflictOn, Problem};
pub use profile::{FingerprintMode, Profile};
pub use rate_limit::{Rate, RateLimit, RateLimited};
pub use request_id::{RequestId, RequestIds};
pub use settings::Settings;
pub use tx::{InTransaction, Tx};
pub use write_plan::WritePlan;
