//! Handlers that touch nothing but their transaction.
//!
//! Such a handler may be started before its key is claimed, and may run a second time: a run that
//! does not commit is rolled back. That its first argument is the transaction is what the types can
//! check; the rest is a promise of its author.

use axum::handler::{Handler, Layered};
use hapax::store::Keys;

use super::{ClaimMode, OperationLayer};
use crate::tx::InTransaction;

impl<K: Keys> OperationLayer<K> {
    /// Applies this layer to a handler that touches nothing but its transaction.
    ///
    /// The handler is any handler of axum whose first argument is its [`Tx`](crate::Tx). It must
    /// not call other systems, write files, or write on another connection, because it may run
    /// twice for one request: a run that does not commit is rolled back, and nothing else of it is
    /// undone. Both runs receive the same body, and copies of the same extensions. In return, a
    /// handler of one statement takes two round trips on PostgreSQL. A statement that would end the
    /// transaction (`COMMIT`, `ROLLBACK`) is refused, so neither run commits anything by itself.
    ///
    /// The first run of a request may meet the locks of a duplicate that is running on another node. A
    /// handler that skips locked rows (`SKIP LOCKED`, `pg_try_advisory_xact_lock`) could store a
    /// refusal for that reason, and must not be used with this method. `NOWAIT` and `lock_timeout` are
    /// harmless, because a handler that fails on them runs again under its claim.
    ///
    /// If nothing is known of the key on this node, the handler starts at once: the key is neither
    /// locked nor looked up. Its first statement is sent together with `BEGIN`; the key, the response,
    /// the events and `COMMIT` are sent together at the end (optimistic claim). If the key was
    /// taken, the transaction is rolled back, the response is discarded, and the request claims its
    /// key like every other one: it replays the stored response, or runs the handler again. The same
    /// happens if the handler returns an error or another response that is not stored, because it
    /// may have failed on the rows of the first execution. The first run of such a handler is not
    /// logged as failed. If the result of the commit is lost and the key is not stored, the response is
    /// 503, and a retry finds out.
    ///
    /// A request whose `Idempotency-Attempt` is greater than 1, and every request of a service that
    /// fails open ([`OnStoreError::Open`](hapax::idempotency::OnStoreError::Open)), claims its key
    /// before the handler starts. A [pipelined claim](Self::claim_pipelined) is used on a store
    /// without optimistic claims, such as SQLite, and for an operation whose
    /// [`retention`](Self::retention) is not longer than twice the time limit of a handler
    /// ([`Settings::handler_max`](crate::Settings::handler_max)): there, the key of a duplicate could
    /// expire while a run has not claimed it yet.
    ///
    /// For all other handlers, use the layer itself: `post(handler).layer(operation)`.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use hapax_http::{Idempotency, Json, Problem, Tx};
    /// use hapax_sqlite::Sqlite;
    /// use http::StatusCode;
    ///
    /// async fn create(
    ///     mut tx: Tx<hapax_sqlite::Tx>,
    ///     Json(amount): Json<i64>,
    /// ) -> Result<StatusCode, Problem> {
    ///     tx.with(move |db| db.execute("INSERT INTO refund VALUES (?1)", [amount])).await?;
    ///     Ok(StatusCode::CREATED)
    /// }
    ///
    /// fn routes(idempotency: &Idempotency<Sqlite>) -> Router {
    ///     let refunds = idempotency.operation("/refunds");
    ///     Router::new().route("/refunds", post(refunds.transaction(create)))
    /// }
    /// # let _ = routes;
    /// ```
    #[must_use]
    pub fn transaction<H, T, S>(self, handler: H) -> Layered<Self, H, T, S>
    where
        H: Handler<T, S>,
        T: InTransaction<K::Tx> + 'static,
        S: Clone + Send + Sync + 'static,
    {
        let layer = self.change(|it| {
            it.policy.claim_mode = ClaimMode::Optimistic;
            it.policy.single_shot = false;
            it.phasing = None;
        });
        handler.layer(layer)
    }
}
