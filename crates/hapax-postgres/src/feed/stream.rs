//! The replication stream of one connection: reads, appends, commits and confirms.
//!
//! A source transaction whose commit is before the recorded position was appended by an earlier
//! connection and is skipped. Several source transactions share one commit while more of them are
//! waiting; a source transaction is never split. The position also moves when there are no events,
//! so that the server can remove its log.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hapax::{Timestamp, limits::STORE_BACKOFF, retry::Delays, sink::BoxError, telemetry};
use tokio::time::{error::Elapsed, timeout};
use tokio_postgres::types::PgLsn;

use super::{
    Change, FeedError, FeedTable, Feeder,
    appender::Appender,
    mapping::{self, Changed, Row},
    names,
    pgoutput::{self, Datum, Head, Message, Old, Relation},
    slot::literal,
    tables::{Table, Tables},
    wire::{Frame, MESSAGE_BYTES_MAX, Mode, Wire},
};

/// Longest time between two reports of the position to the server.
const STATUS: Duration = Duration::from_secs(10);
/// How many times in a row the server may send nothing for [`STATUS`], although it is asked to.
const SILENT_WAITS: u32 = 6;
/// How long events wait for a commit, at most, while more of them arrive.
const COMMIT_WAIT: Duration = Duration::from_millis(50);
/// How often the position is recorded while there are no events. Each record is itself a change of
/// the log, if source and store are one database.
const IDLE_RECORD: Duration = Duration::from_secs(10);
/// How long the start of the stream may take: the creation of a slot waits for open transactions.
const START: Duration = Duration::from_mins(10);
/// How long a stream must last, after one that failed, to count as one that works.
const PROVEN: Duration = Duration::from_mins(1);
/// Microseconds from the Unix epoch to PostgreSQL's epoch.
const MICROS_TO_2000: i64 = 946_684_800_000_000;

/// The source transaction that is being read.
struct SourceTransaction {
    commit_lsn: u64,
    committed_at: Timestamp,
    /// Whether it was appended before.
    is_old: bool,
    /// Changes so far, of all tables.
    changes: u64,
}

/// The place of a change in the log.
struct LogPosition {
    commit_lsn: PgLsn,
    change: u64,
    committed_at: Timestamp,
}

impl LogPosition {
    /// The key of a change, from which the id of its event is derived. It contains the time of the
    /// commit, because after a failover or a restore the log may have another transaction at the
    /// same position.
    fn key(&self, what: &str) -> String {
        let (lsn, change, at) = (self.commit_lsn, self.change, self.committed_at);
        format!("{lsn}.{change} {what} {at}")
    }
}

/// The state of a stream.
struct Stream<'a> {
    feeder: &'a Feeder,
    wire: Wire,
    /// Another connection, for queries, while there is more to read.
    catalog: Option<Wire>,
    appender: Appender<'a>,
    tables: Tables<'a>,
    open: Option<SourceTransaction>,
    /// Up to where everything was received.
    received: u64,
    /// Up to where everything is appended: what was recorded.
    confirmed: u64,
    recorded_at: Instant,
    status_at: Instant,
    silent_waits: u32,
}

impl Feeder {
    /// Connects and reads until something fails.
    pub(super) async fn read(&self, failed: &mut Delays) -> FeedError {
        let opened = async {
            let wire = self.connect(Mode::Replication).await?;
            timeout(START, self.open(wire)).await.map_err(late)?
        };
        let mut stream = match opened.await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let (opened_at, start) = (Instant::now(), stream.confirmed);
        // A stream that always fails at the same change is not up while it comes to it.
        let mut is_up = failed.next_delay() == STORE_BACKOFF.0;
        self.report(is_up, Some(false));
        loop {
            if let Err(error) = stream.step().await {
                return error;
            }
            let has_lasted = opened_at.elapsed() >= PROVEN && stream.is_idle();
            if !is_up && (stream.confirmed > start || has_lasted) {
                is_up = true;
                failed.reset();
                self.report(true, None);
            }
        }
    }

    /// Connects to the source.
    pub(super) async fn connect(&self, mode: Mode) -> Result<Wire, FeedError> {
        let connected = timeout(self.source.connect_max, Wire::connect(&self.source, mode)).await;
        Ok(connected.map_err(late)??)
    }

    async fn open(&self, mut wire: Wire) -> Result<Stream<'_>, FeedError> {
        let checked = self.prepare(&mut wire).await?;
        let failpoints = &self.store.settings().failpoints;
        failpoints.hit("feed.claim.before");
        wire.replicate(&self.command(checked.position)).await?;
        let (epoch, confirmed) = self.claim(&checked).await?;
        failpoints.hit("feed.claim.after");
        let server = checked.server;
        let (confirmed, now) = (u64::from(confirmed), Instant::now());
        Ok(Stream {
            feeder: self,
            wire,
            catalog: None,
            appender: Appender::new(&self.store, &self.feed.name, server.system, epoch),
            tables: Tables::default(),
            open: None,
            received: confirmed,
            confirmed,
            recorded_at: now,
            status_at: now,
            silent_waits: 0,
        })
    }

    /// The command that starts the stream. The server begins at this position, or at the one that
    /// was confirmed to it last, the later of the two.
    fn command(&self, position: PgLsn) -> String {
        let feed = &self.feed;
        let slot = &feed.slot;
        let publication = literal(&format!("\"{}\"", feed.publication.replace('"', "\"\"")));
        let messages = match feed.message_prefix {
            Some(_) => ", \"messages\" 'true'",
            None => "",
        };
        format!(
            "START_REPLICATION SLOT \"{slot}\" LOGICAL {position} (\"proto_version\" '1', \
             \"publication_names\" {publication}{messages})"
        )
    }

    fn table(&self, relation: &Relation) -> Option<&FeedTable> {
        let is_it = |it: &&FeedTable| it.schema == relation.schema && it.table == relation.table;
        self.feed.tables.iter().find(is_it)
    }
}

/// The error of a source that takes too long.
pub(super) fn late(_: Elapsed) -> BoxError {
    "the source does not answer in time".into()
}

impl Stream<'_> {
    /// Whether everything that was received is recorded, or will be with the next position.
    fn is_idle(&self) -> bool {
        self.open.is_none() && self.appender.is_empty()
    }

    /// Receives one message, or records and waits if there is none.
    async fn step(&mut self) -> Result<(), FeedError> {
        if let Some(frame) = self.wire.arrived()? {
            self.receive(frame).await?;
        } else {
            if self.open.is_none() {
                self.settle().await?;
            }
            self.wait().await?;
        }
        if self.status_at.elapsed() >= STATUS {
            self.status(true).await?;
        }
        Ok(())
    }

    /// Waits for the server, for a limited time.
    async fn wait(&mut self) -> Result<(), FeedError> {
        self.catalog = None;
        if let Ok(filled) = timeout(STATUS, self.wire.fill()).await {
            self.silent_waits = 0;
            return Ok(filled?);
        }
        self.silent_waits += 1;
        if self.silent_waits > SILENT_WAITS {
            let silent: BoxError = "the source is silent".into();
            return Err(silent.into());
        }
        Ok(())
    }

    async fn receive(&mut self, frame: Frame) -> Result<(), FeedError> {
        match frame {
            Frame::KeepAlive {
                wal_end,
                wants_status,
            } => {
                // Between two transactions, everything up to here was received.
                if self.open.is_none() {
                    self.received = self.received.max(wal_end);
                }
                if wants_status {
                    self.status(false).await?;
                }
                Ok(())
            }
            Frame::Data { body, is_cut: true } => self.cut(body).await,
            Frame::Data { body, .. } => {
                let message = pgoutput::decode(body).map_err(BoxError::from)?;
                self.apply(message).await
            }
        }
    }

    async fn apply(&mut self, message: Message) -> Result<(), FeedError> {
        self.tables.follow(&message);
        match message {
            Message::Begin {
                commit_lsn,
                committed_at,
            } => {
                let micros = committed_at.saturating_add(MICROS_TO_2000);
                self.open = Some(SourceTransaction {
                    commit_lsn,
                    committed_at: Timestamp::from_millis(micros.div_euclid(1_000)),
                    is_old: commit_lsn < self.confirmed,
                    changes: 0,
                });
                Ok(())
            }
            Message::Commit { end_lsn } => self.end(end_lsn).await,
            Message::Relation(relation) => {
                let described = self.feeder.table(&relation);
                self.tables.learn(relation, described);
                Ok(())
            }
            Message::Insert { relation, new } => {
                self.change(relation, Change::Insert, &new, None).await
            }
            Message::Update { relation, old, new } => {
                let old = old.as_ref();
                self.change(relation, Change::Update, &new, old).await
            }
            Message::Delete { relation, old } => {
                self.change(relation, Change::Delete, &[], Some(&old)).await
            }
            Message::Truncate { relations } => {
                self.truncated(&relations);
                Ok(())
            }
            Message::Logical {
                is_transactional,
                prefix,
                content,
            } => {
                if !self.takes(is_transactional, Some(&prefix)) {
                    return Ok(());
                }
                let Some(place) = self.place()? else {
                    return Ok(());
                };
                let row = mapping::message(&content, place.key("message"));
                self.appender.push(row).await
            }
            Message::Other => Ok(()),
        }
    }

    async fn change(
        &mut self,
        relation: u32,
        change: Change,
        row: &[Datum],
        old: Option<&Old>,
    ) -> Result<(), FeedError> {
        let Some(place) = self.place()? else {
            return Ok(());
        };
        let Some(table) = self.tables.find(relation) else {
            let unknown: BoxError = "a change is of a table that was not described".into();
            return Err(unknown.into());
        };
        let Some(described) = table.described else {
            return self.ignore(relation, change).await;
        };
        let Table {
            relation, leaves, ..
        } = table;
        let (schema, name) = (&relation.schema, &relation.table);
        let key = place.key(&format!("{} {schema}.{name}", change.as_str()));
        let changed = Changed::new(relation, leaves, change, row, old);
        match changed.event(described, key) {
            Some(row) => self.appender.push(row).await,
            None => Ok(()),
        }
    }

    /// Ignores a change of a table that the feed does not describe. Fails if the change may be of one
    /// that it describes.
    async fn ignore(&mut self, relation: u32, change: Change) -> Result<(), FeedError> {
        let Some(table) = self.tables.find(relation) else {
            return Ok(());
        };
        let unknown = table.take_unknown();
        if !unknown.is_empty() {
            let meant = self.feeder.meant(&mut self.catalog, &unknown).await?;
            table.add_aliases(meant);
        }
        let mut aliases = table.aliases.iter();
        if let Some(described) = aliases.find(|it| it.on.contains(&change)) {
            let unfit: BoxError = names::unfit(&table.relation, described).into();
            // The feed stops here for long, so the transactions before this one are not held back.
            if self.open.as_ref().is_some_and(|open| open.changes <= 1) {
                self.settle().await?;
            }
            return Err(unfit.into());
        }
        table.report_ignored(&self.feeder.feed.name);
        Ok(())
    }

    /// Whether a message becomes an event.
    fn takes(&self, is_transactional: bool, prefix: Option<&str>) -> bool {
        let feed = &self.feeder.feed;
        if prefix.is_none() || feed.message_prefix.as_deref() != prefix {
            return false;
        }
        if !is_transactional {
            // It belongs to no transaction, so it would also be delivered if its sender rolled back.
            let feed = feed.name.as_str();
            tracing::error!(
                feed,
                "a message that is not transactional is ignored: its sender may roll back"
            );
            metrics::counter!(telemetry::FEED_SET_ASIDE, "feed" => feed.to_owned()).increment(1);
        }
        is_transactional
    }

    /// Sets a change aside that is too large to be read.
    async fn cut(&mut self, body: Bytes) -> Result<(), FeedError> {
        let known = body.clone();
        let what = match pgoutput::head(body).map_err(BoxError::from)? {
            Head::Row { relation, change } => {
                self.tables.changed(relation);
                let known = self.tables.find(relation);
                if known.as_ref().is_some_and(|it| it.described.is_none()) {
                    return match self.place()? {
                        Some(_) => self.ignore(relation, change).await,
                        None => Ok(()),
                    };
                }
                let is_followed = |table: &FeedTable| table.on.contains(&change);
                let followed = known.filter(|it| it.described.is_some_and(is_followed));
                let change = change.as_str();
                followed.map(|it| format!("{change} {}.{}", it.relation.schema, it.relation.table))
            }
            // One that is not transactional is outside of all transactions.
            Head::Logical {
                is_transactional,
                prefix,
            } => {
                if !self.takes(is_transactional, prefix.as_deref()) {
                    return Ok(());
                }
                Some("message".to_owned())
            }
        };
        let (Some(place), Some(what)) = (self.place()?, what) else {
            return Ok(());
        };
        let problem = format!("the change is larger than {MESSAGE_BYTES_MAX} bytes");
        let row = Row::refused(place.key(&what), problem, &known);
        self.appender.push(row).await
    }

    /// The place of the next change; none if it was appended before.
    fn place(&mut self) -> Result<Option<LogPosition>, FeedError> {
        let Some(open) = &mut self.open else {
            let outside: BoxError = "a change is outside of a transaction".into();
            return Err(outside.into());
        };
        open.changes += 1;
        let place = LogPosition {
            commit_lsn: PgLsn::from(open.commit_lsn),
            change: open.changes,
            committed_at: open.committed_at,
        };
        Ok((!open.is_old).then_some(place))
    }

    fn truncated(&mut self, relations: &[u32]) {
        for id in relations {
            let table = self.tables.find(*id);
            if let Some(table) = table.filter(|it| it.described.is_some()) {
                let (feed, table) = (&self.feeder.feed.name, &table.relation.table);
                tracing::warn!(
                    feed,
                    table,
                    "the table was truncated, which is not an event"
                );
            }
        }
    }

    /// The source transaction has ended.
    async fn end(&mut self, end_lsn: u64) -> Result<(), FeedError> {
        let Some(open) = self.open.take() else {
            let outside: BoxError = "a commit is outside of a transaction".into();
            return Err(outside.into());
        };
        self.received = self.received.max(end_lsn);
        self.lag(self.feeder.store.now().0.since(open.committed_at));
        let is_due = self.recorded_at.elapsed() >= COMMIT_WAIT && !self.appender.is_empty();
        if self.appender.is_full() || is_due {
            self.record().await?;
        }
        Ok(())
    }

    /// Records what was received, as all of it that has arrived was read.
    async fn settle(&mut self) -> Result<(), FeedError> {
        if !self.appender.is_empty() {
            return self.record().await;
        }
        if self.received > self.confirmed && self.recorded_at.elapsed() >= IDLE_RECORD {
            self.lag(Duration::ZERO);
            return self.record().await;
        }
        Ok(())
    }

    async fn record(&mut self) -> Result<(), FeedError> {
        self.appender.commit(self.confirmed, self.received).await?;
        self.confirmed = self.received;
        self.recorded_at = Instant::now();
        self.status(false).await
    }

    async fn status(&mut self, wants_reply: bool) -> Result<(), FeedError> {
        let positions = [self.received, self.confirmed];
        self.wire.status(positions, wants_reply).await?;
        self.status_at = Instant::now();
        Ok(())
    }

    fn lag(&self, lag: Duration) {
        let feed = self.feeder.feed.name.clone();
        metrics::gauge!(telemetry::FEED_LAG, "feed" => feed).set(lag.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_history_has_other_keys_at_the_same_position() {
        let place = |millis| LogPosition {
            commit_lsn: PgLsn::from(0x1_0000_0028),
            change: 2,
            committed_at: Timestamp::from_millis(millis),
        };
        let key = place(1_000).key("insert public.outbox");
        let expected = "1/28.2 insert public.outbox 1970-01-01T00:00:01.000Z";
        assert_eq!(key, expected);
        assert_ne!(place(1_001).key("insert public.outbox"), expected);
    }
}
