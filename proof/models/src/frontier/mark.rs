//! The position of a reader: the mark of `hapax-postgres`, and the read of one statement after it.
//!
//! It follows `frontier.rs`, `outbox/look.rs`, `read.sql` and `read_late.sql` there, with the same
//! names. Segments, shards, byte limits and long scans are left out. The limit on the rows of one
//! statement is included.

use super::{
    Bug,
    server::{Id, Row, Server, Snapshot, Xid},
};

/// How far a reader is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    pub(crate) high: Id,
    pub(crate) seen: Option<Snapshot>,
    pub(crate) floors: Floors,
    /// The value of the sequence, and how much more of the WAL must be flushed for it to be
    /// certain.
    ///
    /// The store keeps the WAL position. Counting from the flushed position makes fewer states.
    pub(crate) drawn: Option<(Id, u8)>,
    pub(crate) late: Option<Late>,
}

/// Late events that are known to be there and not all read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    pub(crate) after: Id,
    pub(crate) before: Snapshot,
}

/// Steps of (from this xid on, ids are higher than this one).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Floors(pub(crate) Vec<(Xid, Id)>);

/// Transactions whose end makes it worth looking below `high`.
pub(crate) struct Open {
    pub(crate) floors: Vec<(Xid, Id)>,
    pub(crate) beyond: Option<Xid>,
}

impl Mark {
    /// Reads what a snapshot shows beyond the mark, the late before the new.
    pub(crate) fn look(
        &self,
        server: &Server,
        snapshot: &Snapshot,
        limit: usize,
        bug: Bug,
    ) -> (Vec<Row>, Self) {
        let shown = |row: &&Row| match bug {
            Bug::SnapshotBefore => row.is_committed,
            Bug::XidBelowXmin => row.is_committed && row.xid < snapshot.xmin,
            _ => row.is_committed && snapshot.shows(row.xid),
        };
        let floor = self.open(bug).lowest(snapshot);
        let was_shown = |xid| match (&self.seen, bug) {
            (Some(seen), Bug::XminIncluded) => seen.shows(xid) || xid == seen.xmin,
            (Some(seen), _) => seen.shows(xid),
            (None, _) => true,
        };
        let is_late = |row: &Row| {
            floor.is_some_and(|floor| row.id > floor && row.id <= self.high) && !was_shown(row.xid)
        };
        let wanted = |row: &&Row| is_late(row) || row.id > self.high;
        let mut found: Vec<Row> = server
            .rows
            .iter()
            .filter(shown)
            .filter(wanted)
            .copied()
            .collect();
        found.sort_by_key(|row| row.id);
        found.truncate(limit);
        let late = found.iter().take_while(|row| row.id <= self.high).count();
        let after = found[..late]
            .last()
            .map(|row| row.id)
            .filter(|_| late >= limit);
        let high = found.last().map_or(self.high, |row| row.id).max(self.high);
        let noted = match bug {
            Bug::SnapshotAfter => server.snapshot(),
            _ => snapshot.clone(),
        };
        (found, self.looked(server, noted, high, after, bug))
    }

    /// Reads on through what is late.
    pub(crate) fn catch_up(&self, late: &Late, server: &Server, limit: usize) -> (Vec<Row>, Self) {
        let is_now = |xid| self.seen.as_ref().is_none_or(|seen| seen.shows(xid));
        let wanted = |row: &&Row| {
            let is_here = row.id > late.after && row.id <= self.high;
            row.is_committed && is_here && !late.before.shows(row.xid) && is_now(row.xid)
        };
        let mut found: Vec<Row> = server.rows.iter().filter(wanted).copied().collect();
        found.sort_by_key(|row| row.id);
        found.truncate(limit);
        let last = found
            .last()
            .map(|row| row.id)
            .filter(|_| found.len() >= limit);
        let mut mark = self.clone();
        mark.late = last.map(|after| Late {
            after,
            before: late.before.clone(),
        });
        (found, mark)
    }

    /// The transactions that may have drawn an id which was passed.
    pub(crate) fn open(&self, bug: Bug) -> Open {
        let (mut floors, mut beyond) = (Vec::new(), None);
        let is_blind = matches!(bug, Bug::IdAlone | Bug::XidBelowXmin);
        if let Some(seen) = self.seen.as_ref().filter(|_| !is_blind) {
            let may_be_late = |xid: Xid| self.floors.of(xid) < self.high;
            for xid in seen.running.iter().filter(|xid| may_be_late(**xid)) {
                floors.push((*xid, self.floors.of(*xid)));
            }
            if may_be_late(seen.xmax) && bug != Bug::XmaxForgotten {
                beyond = Some(seen.xmax);
                floors.push((seen.xmax, self.floors.of(seen.xmax)));
            }
        }
        Open { floors, beyond }
    }

    /// Notes that so many more records of the log are flushed.
    pub(crate) fn flushed(&mut self, records: u8) {
        if let Some((_, behind)) = &mut self.drawn {
            *behind = behind.saturating_sub(records);
        }
    }

    fn looked(
        &self,
        server: &Server,
        snapshot: Snapshot,
        high: Id,
        after: Option<Id>,
        bug: Bug,
    ) -> Self {
        let (mut floors, mut drawn) = (self.floors.clone(), self.drawn);
        if let Some((last, _)) = drawn.take_if(|(_, behind)| *behind == 0) {
            // A crash since then may have set the sequence back, and the log has come as far again.
            let sure = match bug {
                Bug::FloorAcrossCrash => last,
                _ => last.min(server.last),
            };
            floors.push(server.next_xid, sure);
        }
        let now = (server.last, server.unflushed);
        match bug {
            Bug::FloorUnflushed => floors.push(server.next_xid, server.last),
            Bug::FloorAtXmax => floors.push(snapshot.xmax, server.last),
            _ => {}
        }
        floors.prune(&snapshot);
        let before = self.seen.clone().unwrap_or_else(|| snapshot.clone());
        Self {
            high,
            seen: Some(snapshot),
            floors,
            drawn: drawn.or(Some(now)),
            late: after.map(|after| Late { after, before }),
        }
    }
}

impl Open {
    /// Above which id something may be late, if one of them has ended since.
    fn lowest(&self, snapshot: &Snapshot) -> Option<Id> {
        let is_over =
            |xid: Xid| snapshot.shows(xid) || self.beyond == Some(xid) && xid < snapshot.xmax;
        let over = self.floors.iter().filter(|(xid, _)| is_over(*xid));
        over.map(|(_, floor)| *floor).min()
    }
}

impl Floors {
    /// The id that `xid` can have drawn nothing below or at.
    pub(crate) fn of(&self, xid: Xid) -> Id {
        let steps = self.0.iter().take_while(|(from, _)| *from <= xid);
        steps.last().map_or(0, |(_, floor)| *floor)
    }

    fn push(&mut self, from: Xid, floor: Id) {
        if self.0.last().is_some_and(|(_, last)| *last >= floor) {
            return;
        }
        while self.0.last().is_some_and(|(last, _)| *last >= from) {
            self.0.pop();
        }
        self.0.push((from, floor));
    }

    fn prune(&mut self, snapshot: &Snapshot) {
        let passed = self.0.iter().filter(|(from, _)| *from <= snapshot.xmin);
        let passed = passed.count().saturating_sub(1);
        self.0.drain(..passed);
    }
}
