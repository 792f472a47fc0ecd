//! Opening a store: connections, checks of the server, migrations, and the writers of groups.

use hapax::{group, limits::WRITER_JOBS, store::StoreError};

use crate::{
    connection::{Connections, within},
    error::OpenError,
    groups::dispatch,
    migrations,
    postgres::Postgres,
    query,
    settings::Settings,
};

impl Postgres {
    /// Connects to the database and creates, checks or upgrades the tables of the store.
    ///
    /// Logs a warning if `fsync`, `full_page_writes` or `synchronous_commit` is off, because then
    /// committed data may be lost in a power failure.
    ///
    /// # Errors
    /// Fails if the settings are not usable, if the database cannot be reached or is a standby, and
    /// if its schema is not the one that this version knows.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        let connections = Connections::of(&settings)?;
        let mut link = connections.take().await.map_err(unreachable)?;
        let max = settings.statement_max;
        let server = within(max, link.ask(query!("outbox/server"), &[])).await;
        let server = server.map_err(|flight| unreachable(flight.into()))?;
        if server.first().is_some_and(|row| row.get(0)) {
            return Err(OpenError::Standby);
        }
        let off: &str = server.first().map_or("", |row| row.get(1));
        if !off.is_empty() {
            tracing::warn!(
                off,
                "this database can lose committed transactions in a crash"
            );
        }
        let watched = within(max, connections.watch(&link)).await;
        watched.map_err(|flight| unreachable(flight.into()))?;
        migrations::own(&mut link, settings.schema).await?;
        drop(link);
        let (queue, waiting) = group::queue(WRITER_JOBS, settings.group_max);
        let (phase_queue, phases_waiting) = group::queue(WRITER_JOBS, settings.group_max);
        let lanes = settings.lanes;
        let store = Self::new(connections, settings, queue, phase_queue);
        tokio::spawn(dispatch(store.handle(), waiting, lanes));
        tokio::spawn(dispatch(store.handle(), phases_waiting, lanes));
        Ok(store)
    }
}

fn unreachable(error: StoreError) -> OpenError {
    OpenError::Unavailable {
        source: Box::new(error),
    }
}
