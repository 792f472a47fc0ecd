//! The frontier: reading an outbox whose ids are not assigned in the order of the commits.
//!
//! Transactions get xids, draw ids, commit and roll back in any order, concurrently. A reader takes
//! a snapshot, reads after its mark and remembers both. The server may crash: what was not flushed
//! is lost, and numbers are assigned again. The reader survives with its mark in memory.

mod mark;
mod server;

use stateright::{Model, Property};

use self::{
    mark::Mark,
    server::{Row, Server, Snapshot, Writer, bit},
};
use crate::explore::Design;

/// Ids that all transactions together draw at most.
const IDS: u8 = 3;
/// The same within wider bounds.
const IDS_LARGE: u8 = 4;

/// Rows that a statement reads at most.
const READ_ROWS: usize = 1;
/// Transactions.
const WRITERS: usize = 3;

/// A reader among writers.
#[derive(Debug)]
pub(crate) struct Frontier {
    bug: Bug,
    large: bool,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Only events with an id above the last one are read.
    IdAlone,
    /// An event with an id above the last one is read when all older transactions have ended.
    XidBelowXmin,
    /// The oldest running transaction counts as over.
    XminIncluded,
    /// Transactions that run above the highest one that has ended are forgotten.
    XmaxForgotten,
    /// The snapshot is taken before the statement that reads.
    SnapshotBefore,
    /// The snapshot is taken after the statement that reads.
    SnapshotAfter,
    /// The value of the sequence is applied to all transactions that the snapshot does not know.
    FloorAtXmax,
    /// The value of the sequence is used before its WAL record is flushed.
    FloorUnflushed,
    /// The value of the sequence before a crash is used after it, when the WAL has reached the same
    /// position again.
    FloorAcrossCrash,
}

/// The world with its reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    server: Server,
    crashes: u8,
    /// Whether transactions roll back by themselves, too.
    rolls_back: bool,
    mark: Mark,
    /// The snapshot of a statement that has begun.
    holds: Option<Snapshot>,
    /// The events that were read, a bit each.
    read: u16,
    wrong: Wrong,
}

/// Events that must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Wrong {
    twice: bool,
    inverted: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Begin(usize),
    Draw(usize),
    Commit(usize),
    RollBack(usize),
    Flush,
    CrashServer,
    TakeSnapshot,
    Look,
    CatchUp,
}

const PASSED: &str = "no committed event is passed over";
const TWICE: &str = "no event is read twice";
const ORDER: &str = "what was committed first is read first";

impl Design for Frontier {
    type Bug = Bug;

    const NAME: &'static str = "frontier";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::IdAlone, Some(PASSED)),
        (Bug::XidBelowXmin, Some(PASSED)),
        (Bug::XidBelowXmin, Some(ORDER)),
        (Bug::XminIncluded, Some(PASSED)),
        (Bug::XmaxForgotten, Some(PASSED)),
        (Bug::SnapshotBefore, Some(TWICE)),
        (Bug::SnapshotAfter, Some(PASSED)),
        (Bug::FloorAtXmax, Some(PASSED)),
        (Bug::FloorUnflushed, Some(PASSED)),
        (Bug::FloorAcrossCrash, Some(PASSED)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        Self { bug, large }
    }
}

impl Model for Frontier {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let init = |crashes, rolls_back| State {
            server: Server::new(WRITERS),
            crashes,
            rolls_back,
            mark: Mark::default(),
            holds: None,
            read: 0,
            wrong: Wrong::default(),
        };
        if self.large {
            vec![init(1, true)]
        } else {
            vec![init(0, true), init(1, false)]
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let server = &state.server;
        // Writers that have not begun are equivalent, so only the first of them begins.
        let waits = server.writers.iter().position(|it| *it == Writer::Waits);
        actions.extend(waits.map(Action::Begin));
        for (writer, it) in server.writers.iter().enumerate() {
            let Writer::Open(_, drawn) = *it else {
                continue;
            };
            actions.extend(
                (drawn < self.draws() && server.last < self.ids()).then_some(Action::Draw(writer)),
            );
            if drawn > 0 {
                actions.push(Action::Commit(writer));
                actions.extend(state.rolls_back.then_some(Action::RollBack(writer)));
            }
        }
        actions.extend((server.unflushed > 0).then_some(Action::Flush));
        actions.extend((state.crashes > 0 && server.unflushed > 0).then_some(Action::CrashServer));
        actions.push(match (&state.holds, &state.mark.late) {
            (Some(_), _) => Action::Look,
            (None, Some(_)) => Action::CatchUp,
            (None, None) => Action::TakeSnapshot,
        });
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        let server = &mut state.server;
        match action {
            Action::Begin(writer) => server.begin(writer),
            Action::Draw(writer) => server.draw(writer),
            Action::Commit(writer) => {
                // The log is flushed up to its own record.
                state.mark.flushed(server.unflushed + 1);
                server.end(writer, true);
            }
            Action::RollBack(writer) => server.end(writer, false),
            Action::Flush => {
                state.mark.flushed(server.unflushed);
                server.flush();
            }
            Action::CrashServer => {
                state.crashes -= 1;
                state.holds = None;
                server.crash();
                // Recovery writes records in the place of those that were lost.
                state.mark.flushed(u8::MAX);
            }
            Action::TakeSnapshot => state.holds = Some(server.snapshot()),
            Action::Look => {
                let snapshot = state.holds.take()?;
                let (found, mark) = state.mark.look(server, &snapshot, READ_ROWS, self.bug);
                state.take_in(&found, mark);
            }
            Action::CatchUp => {
                let late = state.mark.late.clone()?;
                let (found, mark) = state.mark.catch_up(&late, server, READ_ROWS);
                state.take_in(&found, mark);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PASSED, |model: &Self, state: &State| {
                let has_all = || state.read == state.server.committed();
                !state.has_passed_one() && (has_all() || !model.is_at_rest(state))
            }),
            Property::always(TWICE, |_, state: &State| !state.wrong.twice),
            Property::always(ORDER, |_, state: &State| !state.wrong.inverted),
            Property::sometimes("an event below what was read", |_, state: &State| {
                let unread = state.server.committed() & !state.read;
                state.holds.is_none() && unread != 0 && unread < bit(state.mark.high)
            }),
            Property::sometimes(
                "late events are read in several steps",
                |_, state: &State| state.mark.late.is_some(),
            ),
            Property::sometimes(
                "a writer above the highest that has ended",
                |_, state: &State| {
                    let is_above = |it: &Writer| matches!(it, Writer::Open(xid, _) if *xid > state.server.completed);
                    state.server.completed > 0 && state.server.writers.iter().any(is_above)
                },
            ),
            Property::sometimes(
                "a writer that is not looked for",
                |model: &Self, state: &State| {
                    let is_running = |seen: &Snapshot| !seen.running.is_empty();
                    let open = state.mark.open(model.bug);
                    state.mark.seen.as_ref().is_some_and(is_running) && open.floors.is_empty()
                },
            ),
            Property::sometimes("a crash that sets xids and ids back", |_, state: &State| {
                state.crashes == 0 && state.server.next_xid == 1
            }),
        ]
    }
}

impl Frontier {
    fn ids(&self) -> u8 {
        if self.large { IDS_LARGE } else { IDS }
    }

    /// Ids that a transaction draws at most.
    fn draws(&self) -> u8 {
        if self.large { 2 } else { 1 }
    }

    /// Whether no writer is active, and another read would return nothing new.
    fn is_at_rest(&self, state: &State) -> bool {
        let server = &state.server;
        let is_over = server.writers.iter().all(|it| *it == Writer::Over);
        if !is_over || state.holds.is_some() || state.mark.late.is_some() {
            return false;
        }
        let snapshot = server.snapshot();
        let (found, mark) = state.mark.look(server, &snapshot, READ_ROWS, self.bug);
        found.is_empty() && mark == state.mark
    }
}

impl State {
    /// Whether an event lies below what was read and counts as read, and is not.
    fn has_passed_one(&self) -> bool {
        let Self { mark, server, .. } = self;
        let is_seen = |row: &Row| mark.seen.as_ref().is_some_and(|seen| seen.shows(row.xid));
        let is_passed = |row: &Row| row.id <= mark.high && self.read & bit(row.id) == 0;
        let mut committed = server.rows.iter().filter(|row| row.is_committed);
        mark.late.is_none() && committed.any(|row| is_passed(row) && is_seen(row))
    }

    /// Takes in what was read.
    fn take_in(&mut self, found: &[Row], mark: Mark) {
        for row in found {
            self.wrong.twice |= self.read & bit(row.id) != 0;
            self.wrong.inverted |= row.after & !self.read != 0;
            self.read |= bit(row.id);
        }
        // The order of events that were read no longer matters.
        for row in &mut self.server.rows {
            if self.read & bit(row.id) != 0 {
                row.after = 0;
            }
        }
        self.mark = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::Frontier;
    use crate::explore::check;

    #[test]
    fn nothing_is_passed_over_and_every_bug_is_found() {
        check::<Frontier>();
    }
}
