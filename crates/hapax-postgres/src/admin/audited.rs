//! The transaction of one operation, which ends with a line in the audit log.
//!
//! The operation and its line are committed together. A transaction that is dropped is rolled back.

use hapax::{admin::Actor, store::StoreError};
use tokio_postgres::Row;

use super::audit::{Line, note};
use crate::{postgres::Postgres, query, session::Session, value::Param};

/// The transaction of an operation. It is rolled back when it is dropped.
pub(super) struct AuditedTransaction<'a> {
    store: &'a Postgres,
    session: Session,
}

impl<'a> AuditedTransaction<'a> {
    pub(super) async fn begin(store: &'a Postgres) -> Result<Self, StoreError> {
        let mut session = store.session().await?;
        session.begin(store.begin_read_committed().into());
        Ok(Self { store, session })
    }

    pub(super) async fn ask(
        &mut self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, StoreError> {
        let asked = self.session.run(async |link| link.ask(sql, params).await);
        asked.await.map_err(Into::into)
    }

    /// Locks a partition, which every transaction does that changes its deliveries.
    pub(super) async fn hold(&mut self, partition: &str) -> Result<(), StoreError> {
        self.ask(query!("delivery/hold"), &[&partition])
            .await
            .map(drop)
    }

    /// Writes the operation's line to the audit log.
    pub(super) async fn note(
        &mut self,
        actor: &Actor,
        action: &str,
        object: &str,
        detail: &serde_json::Value,
        outcome: &str,
    ) -> Result<(), StoreError> {
        let line = Line {
            actor,
            action,
            object,
            detail,
            outcome,
        };
        let noted = self.session.run(async |link| note(link, line).await);
        noted.await.map_err(Into::into)
    }

    /// Commits and notifies the relay of this process.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.store
            .settings()
            .failpoints
            .hit("postgres.commit.before");
        if let Err(flight) = self
            .session
            .run(async |link| link.run("COMMIT").await)
            .await
        {
            self.session.rollback().await;
            return Err(flight.into());
        }
        self.session.end();
        self.store
            .settings()
            .failpoints
            .hit("postgres.commit.after");
        self.store.notifier().notify();
        Ok(())
    }

    pub(super) async fn rollback(self) {
        self.session.rollback().await;
    }
}
