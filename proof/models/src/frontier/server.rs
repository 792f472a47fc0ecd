//! PostgreSQL in the model: xids, ids from a sequence, snapshots, and a WAL.
//!
//! After a crash only the WAL remains. Recovery continues from it, so ids and xids that were not
//! committed may be assigned again, and so may positions in the WAL.

/// A transaction's number.
pub(crate) type Xid = u8;
/// An event's id.
pub(crate) type Id = u8;

/// The server and its writers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// The transactions that there were and will be, in the order of their xids.
    pub(crate) writers: Vec<Writer>,
    pub(crate) rows: Vec<Row>,
    /// The last id that was drawn.
    pub(crate) last: Id,
    /// The xid that is given next.
    pub(crate) next_xid: Xid,
    /// The highest xid that has ended.
    pub(crate) completed: Xid,
    /// Records of the log that are not on disk.
    pub(crate) unflushed: u8,
    /// The last id and the highest xid that the flushed WAL contains.
    pub(crate) sure: (Id, Xid),
    /// The highest xid that the WAL contains.
    logged: Xid,
}

/// A transaction that emits events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Writer {
    /// It has not begun.
    Waits,
    /// It has its xid, and has drawn so many ids: its row takes the xid before it draws the id.
    Open(Xid, u8),
    /// It has committed, rolled back or died.
    Over,
}

/// An event in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) id: Id,
    pub(crate) xid: Xid,
    pub(crate) is_committed: bool,
    /// The events that were committed when its id was drawn, a bit each.
    pub(crate) after: u16,
}

/// Which transactions were over at a moment, as `pg_current_snapshot` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    pub(crate) xmin: Xid,
    /// One more than the highest xid that has ended: running ones can lie above it.
    pub(crate) xmax: Xid,
    pub(crate) running: Vec<Xid>,
}

impl Server {
    pub(crate) fn new(writers: usize) -> Self {
        Self {
            writers: vec![Writer::Waits; writers],
            rows: Vec::new(),
            last: 0,
            next_xid: 1,
            completed: 0,
            unflushed: 0,
            sure: (0, 0),
            logged: 0,
        }
    }

    pub(crate) fn begin(&mut self, writer: usize) {
        self.writers[writer] = Writer::Open(self.next_xid, 0);
        self.next_xid += 1;
    }

    pub(crate) fn draw(&mut self, writer: usize) {
        let Writer::Open(xid, drawn) = self.writers[writer] else {
            return;
        };
        self.last += 1;
        self.writers[writer] = Writer::Open(xid, drawn + 1);
        self.log(xid);
        let after = self.committed();
        let is_committed = false;
        let id = self.last;
        self.rows.push(Row {
            id,
            xid,
            is_committed,
            after,
        });
    }

    pub(crate) fn end(&mut self, writer: usize, commits: bool) {
        let Writer::Open(xid, _) = self.writers[writer] else {
            return;
        };
        self.writers[writer] = Writer::Over;
        self.completed = self.completed.max(xid);
        self.log(xid);
        if commits {
            self.flush();
        }
        self.rows.retain(|row| row.xid != xid || commits);
        for row in self.rows.iter_mut().filter(|row| row.xid == xid) {
            row.is_committed = true;
        }
    }

    /// Brings all of the log to disk.
    pub(crate) fn flush(&mut self) {
        self.sure = (self.last, self.logged);
        self.unflushed = 0;
    }

    /// Goes down and comes up again with what is on disk.
    pub(crate) fn crash(&mut self) {
        (self.last, self.logged) = self.sure;
        self.unflushed = 0;
        self.completed = self.logged;
        self.next_xid = self.logged + 1;
        self.rows.retain(|row| row.is_committed);
        for writer in &mut self.writers {
            if matches!(writer, Writer::Open(..)) {
                *writer = Writer::Over;
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let xmax = self.completed + 1;
        let open = self.writers.iter().filter_map(|writer| match writer {
            Writer::Open(xid, _) => Some(*xid),
            _ => None,
        });
        let mut running: Vec<Xid> = open.filter(|xid| *xid < xmax).collect();
        running.sort_unstable();
        Snapshot {
            xmin: running.first().copied().unwrap_or(xmax),
            xmax,
            running,
        }
    }

    fn log(&mut self, xid: Xid) {
        self.unflushed += 1;
        self.logged = self.logged.max(xid);
    }

    /// The events that are committed, a bit each.
    pub(crate) fn committed(&self) -> u16 {
        let committed = self.rows.iter().filter(|row| row.is_committed);
        committed.fold(0, |all, row| all | bit(row.id))
    }
}

impl Snapshot {
    /// As `pg_visible_in_snapshot`: whether a transaction was over.
    pub(crate) fn shows(&self, xid: Xid) -> bool {
        xid < self.xmax && !self.running.contains(&xid)
    }
}

pub(crate) fn bit(id: Id) -> u16 {
    1 << id
}
