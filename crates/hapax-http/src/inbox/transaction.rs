//! Handlers of messages that touch nothing but their transaction.

use axum::handler::{Handler, Layered};
use hapax::store::Keys;

use super::WebhookLayer;
use crate::tx::InTransaction;

impl<K: Keys> WebhookLayer<K> {
    /// Applies this layer to a handler that touches nothing but its transaction.
    ///
    /// The handler must satisfy the conditions of
    /// [`OperationLayer::transaction`](crate::OperationLayer::transaction), because it may run
    /// twice for one message. In return, the acceptance takes no round trip on PostgreSQL: the
    /// handler starts at once, its first statement is sent together with `BEGIN`, and the row of the
    /// inbox is sent together with the events and `COMMIT`. A statement of the handler that would
    /// end its transaction (`COMMIT`, `ROLLBACK`) is refused: the message is not accepted, and its
    /// sender gets a 500 and delivers it again.
    ///
    /// If the message was accepted before, or the handler responds with another status than 2xx,
    /// because it may have failed on the rows of the first delivery, nothing is committed. The
    /// message is then accepted like every other one, and the handler runs again only if the
    /// message is new. Its first run is not logged as failed. If the result of the commit is lost,
    /// the response is 503, and the next delivery finds out.
    ///
    /// On a store that does not accept messages at the commit, such as SQLite, every message is
    /// accepted before its handler starts.
    ///
    /// For all other handlers, and for messages of which most are duplicates, use the layer itself:
    /// `post(handler).layer(layer)`.
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, routing::post};
    /// use hapax_http::{Json, Problem, Tx, WebhookLayer};
    /// use hapax_sqlite::Sqlite;
    ///
    /// async fn book(
    ///     mut tx: Tx<hapax_sqlite::Tx>,
    ///     Json(amount): Json<i64>,
    /// ) -> Result<StatusCode, Problem> {
    ///     tx.with(move |db| db.execute("INSERT INTO ledger_entry VALUES (?1)", [amount])).await?;
    ///     Ok(StatusCode::OK)
    /// }
    ///
    /// fn routes(layer: WebhookLayer<Sqlite>) -> Router {
    ///     Router::new().route("/webhooks/{source}", post(layer.transaction(book)))
    /// }
    /// # let _ = routes;
    /// ```
    #[must_use]
    pub fn transaction<H, T, S>(mut self, handler: H) -> Layered<Self, H, T, S>
    where
        H: Handler<T, S>,
        T: InTransaction<K::Tx> + 'static,
        S: Clone + Send + Sync + 'static,
    {
        self.change().accepts_at_commit = true;
        handler.layer(self)
    }
}
