//! The connection that the batches of one destination share.
//!
//! The first batch that needs a connection opens it, within the time of that batch. A connection
//! that is lost or was discarded is not used again: the next batch opens a new one. A batch whose
//! outcome is unknown discards its connection, and the relay delivers its events again.

use std::sync::Arc;

use tokio::sync::Mutex;

/// A connection to a receiver.
pub(crate) trait Connection {
    /// Whether further batches can use it: it is neither lost nor discarded.
    fn is_alive(&self) -> bool;

    /// Discards the connection.
    fn discard(&self);
}

/// The current connection, if there is one.
pub(crate) struct Current<C>(Mutex<Option<Arc<C>>>);

impl<C: Connection> Current<C> {
    /// The current connection, or the one that `open` opens. Batches that need it at the same time
    /// wait for the first one.
    pub(crate) async fn get<E>(
        &self,
        open: impl Future<Output = Result<C, E>>,
    ) -> Result<Arc<C>, E> {
        let mut current = self.0.lock().await;
        if let Some(connection) = current.as_ref().filter(|it| it.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        *current = None;
        let connection = Arc::new(open.await?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

impl<C> Default for Current<C> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

/// The use of a connection by one batch. Unless the batch calls [`Use::keep`] at its end, the
/// connection is discarded.
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) struct Use<C: Connection> {
    pub(crate) connection: Arc<C>,
    is_kept: bool,
}

#[cfg(any(feature = "redis", feature = "postgres"))]
impl<C: Connection> Use<C> {
    pub(crate) fn of(connection: Arc<C>) -> Self {
        Self {
            connection,
            is_kept: false,
        }
    }

    /// Leaves the connection to the next batch.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

#[cfg(any(feature = "redis", feature = "postgres"))]
impl<C: Connection> Drop for Use<C> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.discard();
        }
    }
}
