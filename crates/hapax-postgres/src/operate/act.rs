//! One act of an operator: a transaction that ends with its line in the audit log.

use hapax::store::StoreError;
use tokio_postgres::Row;

use super::{
    Actor,
    audit::{Line, note},
};
use crate::{outbox::begin, postgres::Postgres, query, session::Session, value::Param};

/// A transaction in which something is done; dropped, it is rolled back.
pub(super) struct Act<'a> {
    store: &'a Postgres,
    session: Session,
}

impl<'a> Act<'a> {
    pub(super) async fn begin(store: &'a Postgres) -> Result<Self, StoreError> {
        let mut session = Session::open(store).await?;
        session.begin(begin(store).into());
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

    /// Takes hold of a part, as everybody does who changes its deliveries.
    pub(super) async fn hold(&mut self, part: &str) -> Result<(), StoreError> {
        self.ask(query!("delivery/hold"), &[&part]).await.map(drop)
    }

    /// Writes the act down.
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

    /// Commits, and has the relay of this process look.
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
