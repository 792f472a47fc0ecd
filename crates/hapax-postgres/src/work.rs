//! Transactions of several statements of our own, one after the other.

use hapax::store::StoreError;
use tokio_postgres::Row;

use crate::{postgres::Postgres, session::Session, value::Param};

/// A transaction, which is rolled back when it is dropped.
pub(crate) struct Work<'a> {
    store: &'a Postgres,
    session: Session,
}

impl<'a> Work<'a> {
    pub(crate) async fn begin(store: &'a Postgres) -> Result<Self, StoreError> {
        let mut session = store.session().await?;
        session.begin(store.begin_read_committed().into());
        Ok(Self { store, session })
    }

    pub(crate) fn store(&self) -> &'a Postgres {
        self.store
    }

    pub(crate) async fn ask(
        &mut self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, StoreError> {
        let asked = self.session.run(async |link| link.ask(sql, params).await);
        asked.await.map_err(Into::into)
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let failpoints = &self.store.settings().failpoints;
        failpoints.hit("postgres.commit.before");
        let committed = self.session.run(async |link| link.run("COMMIT").await);
        if let Err(failed) = committed.await {
            self.session.rollback().await;
            return Err(failed.into());
        }
        self.session.end();
        failpoints.hit("postgres.commit.after");
        Ok(())
    }

    pub(crate) async fn rollback(self) {
        self.session.rollback().await;
    }
}
