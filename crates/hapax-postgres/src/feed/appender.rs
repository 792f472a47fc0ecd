//! Appender: the transaction of the store in which changes become events.
//!
//! Changes are collected into batches that are bounded in number and bytes. The first batch opens
//! the transaction, and a source transaction of any size is appended in it batch by batch, so the
//! memory does not grow with it. The position is written last, under the epoch of the feeder.

use hapax::telemetry;
use tokio_postgres::{Row as SqlRow, types::PgLsn};

use super::{FeedError, mapping::Row};
use crate::{postgres::Postgres, query, session::Session, value::Param};

/// Changes of one batch.
const BATCH_ROWS: usize = 500;
/// Bytes of one batch, above which it is sent.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// The events that are not committed yet.
pub(super) struct Appender<'a> {
    store: &'a Postgres,
    /// The feed, and the name under which its changes are set aside.
    feed: &'a str,
    source: String,
    /// Event ids are derived from it and the position in the log.
    system: String,
    epoch: i64,
    session: Option<Session>,
    rows: Vec<Row>,
    bytes: usize,
    appended: u64,
    set_aside: u64,
}

impl<'a> Appender<'a> {
    pub(super) fn new(store: &'a Postgres, feed: &'a str, system: String, epoch: i64) -> Self {
        Self {
            store,
            feed,
            source: format!("feeds.{feed}"),
            system,
            epoch,
            session: None,
            rows: Vec::new(),
            bytes: 0,
            appended: 0,
            set_aside: 0,
        }
    }

    /// Whether nothing waits for a commit.
    pub(super) fn is_empty(&self) -> bool {
        self.session.is_none() && self.rows.is_empty()
    }

    /// Whether enough was appended or collected for a commit.
    pub(super) fn is_full(&self) -> bool {
        self.appended + self.set_aside > 0 || self.is_batch()
    }

    /// Adds a change; sends the batch if it is complete.
    pub(super) async fn push(&mut self, row: Row) -> Result<(), FeedError> {
        self.bytes += row.bytes();
        self.rows.push(row);
        if self.is_batch() {
            self.send().await?;
        }
        Ok(())
    }

    /// Commits the events together with the position up to which the log was read. Fails if the
    /// position before is not this one.
    pub(super) async fn commit(&mut self, before: u64, position: u64) -> Result<(), FeedError> {
        self.send().await?;
        let mut session = match self.session.take() {
            Some(session) => session,
            None => begin(self.store).await?,
        };
        let (before, position) = (PgLsn::from(before), PgLsn::from(position));
        let now = self.store.now();
        let params: [&dyn Param; 5] = [&self.feed, &self.epoch, &position, &now, &before];
        let failpoints = &self.store.settings().failpoints;
        failpoints.hit("feed.commit.before");
        let committed = session.run(async |link| {
            link.ask(query!("feed/advance"), &params).await?;
            link.run("COMMIT").await
        });
        if let Err(error) = committed.await {
            session.rollback().await;
            return Err(error.into());
        }
        session.end();
        failpoints.hit("feed.commit.after");
        if self.appended > 0 {
            self.store.notifier().notify();
        }
        self.count();
        Ok(())
    }

    fn is_batch(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    async fn send(&mut self) -> Result<(), FeedError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut session = match self.session.take() {
            Some(session) => session,
            None => begin(self.store).await?,
        };
        let now = self.store.now();
        let columns = Columns::of(&self.rows);
        let params = columns.params([&self.source, &now, &self.system]);
        let sent = session.run(async |link| link.ask(query!("feed/append"), &params).await);
        match sent.await {
            Ok(counts) => {
                self.session = Some(session);
                self.rows.clear();
                self.bytes = 0;
                self.sum(&counts);
                Ok(())
            }
            Err(error) => {
                session.rollback().await;
                Err(error.into())
            }
        }
    }

    fn sum(&mut self, counts: &[SqlRow]) {
        let Some(row) = counts.first() else { return };
        let count = |column| row.get::<_, i64>(column).unsigned_abs();
        self.appended += count("appended");
        let set_aside = count("set_aside");
        self.set_aside += set_aside;
        if set_aside > 0 {
            let (feed, examples) = (self.feed, row.get::<_, Vec<String>>("examples"));
            tracing::error!(
                feed,
                changes = set_aside,
                examples = examples.join("; "),
                "changes cannot be events and were set aside: see hapax.set_aside"
            );
        }
    }

    /// Counts what was committed.
    fn count(&mut self) {
        let counter = |name: &'static str| metrics::counter!(name, "feed" => self.feed.to_owned());
        counter(telemetry::FEED_EVENTS).increment(self.appended);
        counter(telemetry::FEED_SET_ASIDE).increment(self.set_aside);
        (self.appended, self.set_aside) = (0, 0);
    }
}

async fn begin(store: &Postgres) -> Result<Session, FeedError> {
    let mut session = store.session().await?;
    // While the server decodes changes that are no events, this transaction waits. PostgreSQL 17
    // can also limit how long a transaction lasts.
    let begin = store.begin_read_committed();
    let patient = "SELECT set_config(name, '0', true) FROM unnest( \
                   '{idle_in_transaction_session_timeout, transaction_timeout}'::text[]) AS name \
                   WHERE current_setting(name, true) IS NOT NULL";
    session.begin(format!("{begin}; {patient}").into());
    Ok(session)
}

/// The columns of `feed/append`, one array each.
struct Columns<'a> {
    texts: [Vec<Option<&'a str>>; 10],
    keys: Vec<&'a str>,
    sequences: Vec<Option<i64>>,
    payloads: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let text = |column: fn(&Row) -> &Option<String>| -> Vec<Option<&'a str>> {
            rows.iter().map(|row| column(row).as_deref()).collect()
        };
        Self {
            texts: [
                text(|row| &row.problem),
                text(|row| &row.event_id),
                text(|row| &row.kind),
                text(|row| &row.tenant),
                text(|row| &row.aggregate_type),
                text(|row| &row.aggregate_id),
                text(|row| &row.content_type),
                text(|row| &row.headers),
                text(|row| &row.available_at),
                text(|row| &row.created_at),
            ],
            keys: rows.iter().map(|row| row.key.as_str()).collect(),
            sequences: rows.iter().map(|row| row.sequence).collect(),
            payloads: rows.iter().map(|row| row.payload.as_deref()).collect(),
        }
    }

    /// The parameters, in the order of the statement.
    fn params<'b>(&'b self, first: [&'b dyn Param; 3]) -> [&'b dyn Param; 16] {
        let [source, now, system] = first;
        let [
            problem,
            event_id,
            kind,
            tenant,
            aggregate_type,
            aggregate_id,
            rest @ ..,
        ] = &self.texts;
        let [content_type, headers, available_at, created_at] = rest;
        [
            source,
            now,
            system,
            &self.keys,
            problem,
            event_id,
            kind,
            tenant,
            aggregate_type,
            aggregate_id,
            &self.sequences,
            &self.payloads,
            content_type,
            headers,
            available_at,
            created_at,
        ]
    }
}
