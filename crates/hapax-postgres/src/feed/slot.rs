//! The replication slot, compared with the recorded position.
//!
//! A position is only valid together with the slot and the history that it was read in. If the slot
//! is missing, lost or ahead of the position, if the server has another history since before the
//! position, or if there is a slot and no position, then changes may be missing: that is a gap. A
//! promoted standby is no gap if its history contains the position, which is the case with failover
//! slots. The primary that it has replaced is not read, if it runs again.

use tokio_postgres::types::PgLsn;

use super::{
    FeedError, Feeder,
    wire::{Mode, Wire, text},
};
use crate::{query, value::Param};

/// The first version of PostgreSQL with failover slots.
const FAILOVER: u32 = 170_000;

/// The identity of the server.
pub(super) struct Server {
    pub(super) system: String,
    pub(super) timeline: i64,
    /// The end of its log.
    end: PgLsn,
}

/// Where a feed may continue, if nothing has changed when its slot is held.
pub(super) struct Checked {
    pub(super) server: Server,
    pub(super) position: PgLsn,
    /// The timeline that was recorded with the position.
    timeline: i64,
}

/// A slot as the server describes it.
struct Slot {
    is_usable: bool,
    is_active: bool,
    is_lost: bool,
    confirmed: PgLsn,
}

/// What is recorded of a feed. It has no position until its slot is there, and after a gap was
/// accepted.
struct Recorded {
    system: String,
    timeline: i64,
    confirmed: Option<PgLsn>,
}

impl Feeder {
    /// Finds out where to read from; records the position if there is none.
    pub(super) async fn prepare(&self, wire: &mut Wire) -> Result<Checked, FeedError> {
        // The slot never passes a position that is recorded later, and a position never passes the
        // end of the log that is read later.
        let slot = self.slot(wire).await?;
        let recorded = self.recorded().await?;
        let server = server(wire).await?;
        // The feed is recorded before its slot is created.
        let is_unknown = recorded.is_none()
            && slot
                .as_ref()
                .is_some_and(|slot| slot.is_usable && !slot.is_active);
        if is_unknown {
            let problem = "the replication slot exists, but no position of this feed is recorded";
            return Err(self.gap(problem, &server, None).await?);
        }
        let position = recorded.as_ref().and_then(|recorded| recorded.confirmed);
        let (Some(recorded), Some(position)) = (recorded, position) else {
            let position = self.start(wire, slot, &server).await?;
            let timeline = server.timeline;
            return Ok(Checked {
                server,
                position,
                timeline,
            });
        };
        let Some(slot) = slot else {
            // Another feeder may just have created it and recorded its position.
            if self.slot(wire).await?.is_some() {
                return Err(FeedError::Busy);
            }
            let problem = "the replication slot is missing";
            return Err(self.gap(problem, &server, Some(position)).await?);
        };
        if slot.is_active {
            return Err(FeedError::Busy);
        }
        match problem(wire, &server, &slot, &recorded, position).await? {
            Some(problem) => Err(self.gap(&problem, &server, Some(position)).await?),
            None => Ok(Checked {
                server,
                position,
                timeline: recorded.timeline,
            }),
        }
    }

    /// Takes the feed over, when the slot is held. Returns the epoch and the position.
    ///
    /// Before that, the slot and the row can still change: another feeder or another program reads the
    /// slot, an operator accepts a gap, the store is restored from a backup. Then everything is checked
    /// again on a new connection, because this one sends from a position that was not checked.
    pub(super) async fn claim(&self, checked: &Checked) -> Result<(i64, PgLsn), FeedError> {
        let (feed, server) = (&self.feed, &checked.server);
        let params: [&dyn Param; 6] = [
            &feed.name,
            &feed.slot,
            &server.timeline,
            &checked.position,
            &server.system,
            &checked.timeline,
        ];
        let claimed = self.store.ask(query!("feed/claim"), &params).await?;
        let row = claimed.first().ok_or(FeedError::Busy)?;
        let (epoch, position): (i64, PgLsn) = (row.get("epoch"), row.get("confirmed_lsn"));
        // The stream takes no queries.
        let mut wire = self.connect(Mode::Queries).await?;
        match self.slot(&mut wire).await? {
            Some(slot) if slot.confirmed <= position => Ok((epoch, position)),
            _ => Err(FeedError::Busy),
        }
    }

    async fn recorded(&self) -> Result<Option<Recorded>, FeedError> {
        let name: [&dyn Param; 1] = [&self.feed.name];
        let found = self.store.ask(query!("feed/find"), &name).await?;
        let Some(row) = found.first() else {
            return Ok(None);
        };
        if let Some(gap) = row.get::<_, Option<String>>("gap") {
            return Err(FeedError::Gap(gap));
        }
        Ok(Some(Recorded {
            system: row.get("system_identifier"),
            timeline: row.get("timeline"),
            confirmed: row.get("confirmed_lsn"),
        }))
    }

    /// Records a gap after this position, unless the feed has moved on meanwhile.
    async fn gap(
        &self,
        problem: &str,
        server: &Server,
        position: Option<PgLsn>,
    ) -> Result<FeedError, FeedError> {
        let gap = match position {
            Some(position) => format!("{problem}; changes after {position} may be missing"),
            None => format!("{problem}; changes may be missing"),
        };
        let (feed, now) = (&self.feed, self.store.now());
        let (system, timeline) = (&server.system, &server.timeline);
        let params: [&dyn Param; 7] = [
            &feed.name, &feed.slot, system, timeline, &gap, &now, &position,
        ];
        self.store.ask(query!("feed/gap"), &params).await?;
        // The next look reads what is recorded.
        Ok(FeedError::Gap(gap))
    }

    /// Starts at the position of the slot, which is created if it is missing or lost. Returns the
    /// position.
    async fn start(
        &self,
        wire: &mut Wire,
        slot: Option<Slot>,
        server: &Server,
    ) -> Result<PgLsn, FeedError> {
        let feed = &self.feed;
        let position = match slot {
            Some(slot) if slot.is_active => return Err(FeedError::Busy),
            Some(slot) if !slot.is_usable => return Err(FeedError::Source(self.foreign().into())),
            Some(slot) if !slot.is_lost => slot.confirmed,
            lost => {
                self.check_publication(wire).await?;
                self.record_start(server, None).await?;
                if lost.is_some() {
                    let drop_it =
                        format!("SELECT pg_drop_replication_slot({})", literal(&feed.slot));
                    wire.query(&drop_it).await?;
                }
                self.create(wire).await?
            }
        };
        self.record_start(server, Some(position)).await?;
        let (name, at) = (&feed.name, position.to_string());
        tracing::info!(feed = name, position = at, "the feed starts");
        Ok(position)
    }

    async fn record_start(
        &self,
        server: &Server,
        position: Option<PgLsn>,
    ) -> Result<(), FeedError> {
        let (feed, now) = (&self.feed, self.store.now());
        let (system, timeline) = (&server.system, &server.timeline);
        let params: [&dyn Param; 6] = [&feed.name, &feed.slot, system, timeline, &position, &now];
        self.store.ask(query!("feed/start"), &params).await?;
        Ok(())
    }

    /// The log is decoded with the catalog of its time, so a publication that is created after the
    /// slot is not found.
    async fn check_publication(&self, wire: &mut Wire) -> Result<(), FeedError> {
        let name = &self.feed.publication;
        let find = "SELECT 1 FROM pg_publication WHERE pubname = ";
        let found = wire.query(&format!("{find}{}", literal(name))).await?;
        if found.is_empty() {
            let problem =
                format!("there is no publication {name} in the source database: create it first");
            return Err(FeedError::Source(problem.into()));
        }
        Ok(())
    }

    async fn create(&self, wire: &mut Wire) -> Result<PgLsn, FeedError> {
        let slot = literal(&self.feed.slot);
        let failover = if self.feed.failover {
            let version = wire.query("SHOW server_version_num").await?;
            let version: u32 = text(&version, 0).unwrap_or_default().parse().unwrap_or(0);
            if version < FAILOVER {
                let problem = "failover slots need PostgreSQL 17 or later";
                return Err(FeedError::Source(problem.into()));
            }
            ", true"
        } else {
            ""
        };
        tracing::info!(
            slot,
            "creating the slot, which waits for open transactions to end"
        );
        let create = format!(
            "SELECT lsn FROM pg_create_logical_replication_slot({slot}, 'pgoutput', false, false{failover})"
        );
        let created = wire.query(&create).await?;
        lsn(text(&created, 0))
    }

    async fn slot(&self, wire: &mut Wire) -> Result<Option<Slot>, FeedError> {
        let find = format!(
            "SELECT plugin = 'pgoutput' AND database = current_database(), active, \
             coalesce(wal_status, '') = 'lost', coalesce(confirmed_flush_lsn, '0/0') \
             FROM pg_replication_slots WHERE slot_name = {}",
            literal(&self.feed.slot)
        );
        let found = wire.query(&find).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let is = |column| text(&found, column) == Some("t");
        Ok(Some(Slot {
            is_usable: is(0),
            is_active: is(1),
            is_lost: is(2),
            confirmed: lsn(text(&found, 3))?,
        }))
    }

    fn foreign(&self) -> String {
        let slot = &self.feed.slot;
        format!("slot {slot} is of another database or plugin: name another slot")
    }
}

/// Why the slot does not continue at the recorded position.
async fn problem(
    wire: &mut Wire,
    server: &Server,
    slot: &Slot,
    recorded: &Recorded,
    position: PgLsn,
) -> Result<Option<String>, FeedError> {
    if server.system != recorded.system {
        let (there, here) = (&recorded.system, &server.system);
        return Ok(Some(format!(
            "the server {there} was replaced by the server {here}"
        )));
    }
    // No gap: the feed continues once the URL leads to the promoted server.
    if server.timeline < recorded.timeline {
        let (here, there) = (server.timeline, recorded.timeline);
        let problem = format!(
            "the server is on timeline {here} and the feed on timeline {there}: its standby was \
             promoted, and the URL still leads to the earlier primary"
        );
        return Err(FeedError::Source(problem.into()));
    }
    if !slot.is_usable {
        return Ok(Some("the slot is of another database or plugin".to_owned()));
    }
    if slot.is_lost {
        let problem = "the server has invalidated the slot (max_slot_wal_keep_size, \
                       idle_replication_slot_timeout)";
        return Ok(Some(problem.to_owned()));
    }
    if slot.confirmed > position {
        let confirmed = slot.confirmed;
        return Ok(Some(format!(
            "the slot is at {confirmed}, past the feed's position"
        )));
    }
    if server.end < position {
        let end = server.end;
        return Ok(Some(format!(
            "the log of the server ends at {end}, before the position"
        )));
    }
    if server.timeline != recorded.timeline {
        let left = left_at(wire, server.timeline, recorded.timeline).await?;
        if left.is_none_or(|left| left < position) {
            return Ok(Some(format!(
                "a standby was promoted (timeline {}) that did not have the log up to the position",
                server.timeline
            )));
        }
    }
    Ok(None)
}

/// Where the history of a timeline has left an earlier one; none if it does not contain it.
async fn left_at(wire: &mut Wire, timeline: i64, earlier: i64) -> Result<Option<PgLsn>, FeedError> {
    let history = wire.query(&format!("TIMELINE_HISTORY {timeline}")).await?;
    let left = left_in(text(&history, 1).unwrap_or_default(), earlier);
    left.map(|left| lsn(Some(left))).transpose()
}

/// The same, in a history file: lines of a timeline and the position where it was left.
fn left_in(history: &str, earlier: i64) -> Option<&str> {
    let earlier = earlier.to_string();
    let mut lines = history.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == earlier).then(|| words.next())?)
}

async fn server(wire: &mut Wire) -> Result<Server, FeedError> {
    let row = wire.query("IDENTIFY_SYSTEM").await?;
    let timeline = text(&row, 1).and_then(|timeline| timeline.parse().ok());
    let (Some(system), Some(timeline)) = (text(&row, 0), timeline) else {
        let problem = "the server does not say which system it is";
        return Err(FeedError::Source(problem.into()));
    };
    Ok(Server {
        system: system.to_owned(),
        timeline,
        end: lsn(text(&row, 2))?,
    })
}

fn lsn(text: Option<&str>) -> Result<PgLsn, FeedError> {
    let read = text.and_then(|text| text.parse().ok());
    read.ok_or_else(|| FeedError::Source("a position of the log cannot be read".into()))
}

/// A text as a literal of the replication grammar and of SQL.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_names_where_each_earlier_timeline_was_left() {
        let history =
            "1\t0/3000000\tno recovery target specified\n\n# a comment\n2\t0/5000028\tx\n";
        assert_eq!(left_in(history, 1), Some("0/3000000"));
        assert_eq!(left_in(history, 2), Some("0/5000028"));
        assert_eq!(left_in(history, 3), None);
        assert_eq!(left_in("", 1), None);
    }

    #[test]
    fn a_literal_ends_where_it_ends() {
        assert_eq!(literal("it's"), "'it''s'");
    }
}
