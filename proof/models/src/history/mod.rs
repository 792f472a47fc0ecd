//! A database that is set back to an earlier state while a relay runs.
//!
//! Events are committed under ids of a sequence. A relay reads after its head, delivers, and
//! settles into a checkpoint in the same database. Once, an image of everything is taken, and once
//! it replaces the database: under another name or the same one, with its sequence or, as after
//! logical replication, without it. The relay keeps its memory, may crash, and may poll late.
//! Deliveries and losses before the restore do not count: everything that is committed after it
//! must be delivered.

use stateright::{Model, Property};

use crate::explore::Design;

/// Events that are committed at most, before and after.
const EVENTS: u8 = 4;
const EVENTS_LARGE: u8 = 6;
/// Relays that crash.
const CRASHES: u8 = 1;

/// A relay over a database that is set back.
#[derive(Debug)]
pub(crate) struct History {
    bug: Bug,
    large: bool,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Neither the database's name nor what it holds is compared with what was read.
    NothingCompared,
    /// The name alone is compared, which a dump that is restored over its database keeps.
    NameAlone,
    /// Name and sequence are compared, which may have passed the highest id again.
    NameAndSequence,
    /// What was read is compared only when something is settled.
    IdleUnwatched,
    /// A sequence that was not brought along is raised, and what was committed meanwhile is left where it lies.
    RaisedAlone,
    /// A settlement is not compared with the stored events: a relay has read and settled nothing
    /// since the image, and settles the events that it holds after their ids were assigned again.
    ReadUnsettled,
}

/// The content of the database, all of which is in an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Database {
    name: u8,
    /// The last id that was drawn.
    last: u8,
    events: Vec<Event>,
    checkpoint: Checkpoint,
    /// The value of the sequence of checkpoints.
    checkpoints: u8,
}

/// A committed event: its id, and which of all that were ever committed it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Event {
    id: u8,
    number: u8,
}

/// How far the partition is, and the settlement that says so: no two settlements are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Checkpoint {
    high: u8,
    /// The name of the database that it was read in.
    name: u8,
    settlement: u8,
    /// Its number in the log: the highest counts.
    number: u8,
}

/// The memory of the relay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Relay {
    /// Up to where it has read, and in which database.
    head: (u8, u8),
    /// The stored checkpoint, as far as the relay knows.
    newest: Checkpoint,
    /// Events that were read and are not settled.
    held: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    database: Database,
    image: Option<Database>,
    /// How many events were committed before the image took the place, once it has.
    restored_after: Option<u8>,
    /// Events that were ever committed, and settlements that were made.
    committed: u8,
    settlements: u8,
    crashes: u8,
    relay: Option<Relay>,
    /// Which of all events were delivered, a bit each.
    delivered: u16,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Commit,
    Purge,
    TakeImage,
    /// In its place, or under another name; with its sequences or without.
    Restore {
        renamed: bool,
        sequences: bool,
    },
    Open,
    Read,
    Settle,
    Watch,
    Crash,
}

const PASSED: &str = "no event committed after a restore is passed over";

impl Design for History {
    type Bug = Bug;

    const NAME: &'static str = "history";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::NothingCompared, Some(PASSED)),
        (Bug::NameAlone, Some(PASSED)),
        (Bug::NameAndSequence, Some(PASSED)),
        (Bug::IdleUnwatched, Some(PASSED)),
        (Bug::RaisedAlone, Some(PASSED)),
        (Bug::ReadUnsettled, Some(PASSED)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        Self { bug, large }
    }
}

impl Model for History {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            database: Database {
                name: 1,
                last: 0,
                events: Vec::new(),
                checkpoint: Checkpoint::default(),
                checkpoints: 0,
            },
            image: None,
            restored_after: None,
            committed: 0,
            settlements: 0,
            crashes: CRASHES,
            relay: None,
            delivered: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let database = &state.database;
        if state.committed < self.events() {
            actions.push(Action::Commit);
        }
        // What is passed may be purged, and its id be given again. Of what came since it is too early.
        let is_passed = |event: &Event| event.id <= database.checkpoint.high;
        if state.restored_after.is_none() && database.events.first().is_some_and(is_passed) {
            actions.push(Action::Purge);
        }
        match (&state.image, state.restored_after) {
            (None, _) => actions.push(Action::TakeImage),
            (Some(_), None) => {
                for (renamed, sequences) in
                    [(true, true), (true, false), (false, true), (false, false)]
                {
                    actions.push(Action::Restore { renamed, sequences });
                }
            }
            _ => {}
        }
        let Some(relay) = &state.relay else {
            return actions.push(Action::Open);
        };
        actions.push(Action::Read);
        actions.extend((!relay.held.is_empty()).then_some(Action::Settle));
        actions.push(Action::Watch);
        actions.extend((state.crashes > 0).then_some(Action::Crash));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Commit => state.commit(),
            Action::Purge => drop(state.database.events.remove(0)),
            Action::TakeImage => state.image = Some(state.database.clone()),
            Action::Restore { renamed, sequences } => {
                let mut image = state.image.clone()?;
                if renamed {
                    image.name = 2;
                }
                if !sequences {
                    (image.last, image.checkpoints) = (0, 0);
                }
                state.restored_after = Some(state.committed);
                state.database = image;
            }
            Action::Open => {
                self.raise(&mut state.database, true);
                let checkpoint = state.database.checkpoint;
                state.relay = Some(Relay {
                    head: (checkpoint.high, checkpoint.name),
                    newest: checkpoint,
                    held: Vec::new(),
                });
            }
            Action::Read => self.read(&mut state),
            Action::Settle => self.settle(&mut state),
            Action::Watch => {
                let relay = state.relay.as_ref()?;
                let database = &state.database;
                let is_counted = database.checkpoints >= database.checkpoint.number;
                let is_known = relay.newest == database.checkpoint && is_counted;
                if self.watches() && relay.held.is_empty() && !is_known {
                    state.relay = None;
                }
            }
            Action::Crash => {
                state.crashes -= 1;
                state.relay = None;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PASSED, |model: &Self, state: &State| {
                !state.has_undelivered() || !model.is_at_rest(state)
            }),
            Property::sometimes(
                "a sequence stands below what was read",
                |_, state: &State| {
                    state
                        .relay
                        .as_ref()
                        .is_some_and(|relay| relay.head.0 > state.database.last)
                },
            ),
            Property::sometimes(
                "a sequence passes the highest id unseen",
                |_, state: &State| {
                    let is_back = state
                        .restored_after
                        .is_some_and(|before| before < state.committed);
                    let head = state.relay.as_ref().map(|relay| relay.head);
                    is_back
                        && head.is_some_and(|(high, _)| {
                            high > state.database.checkpoint.high && high <= state.database.last
                        })
                },
            ),
            Property::sometimes(
                "an event lies below what every partition has passed",
                |_, state: &State| {
                    let database = &state.database;
                    let since = state.restored_after;
                    let is_new = |number| since.is_some_and(|since| number >= since);
                    let passed = |id| id <= database.checkpoint.high;
                    database
                        .events
                        .iter()
                        .any(|event| is_new(event.number) && passed(event.id))
                },
            ),
        ]
    }
}

impl History {
    fn events(&self) -> u8 {
        if self.large { EVENTS_LARGE } else { EVENTS }
    }

    fn compares_name(&self) -> bool {
        self.bug != Bug::NothingCompared
    }

    fn compares_sequence(&self) -> bool {
        !matches!(self.bug, Bug::NothingCompared | Bug::NameAlone)
    }

    fn compares_checkpoint(&self) -> bool {
        self.compares_sequence() && self.bug != Bug::NameAndSequence
    }

    fn watches(&self) -> bool {
        self.compares_checkpoint() && self.bug != Bug::IdleUnwatched
    }

    fn compares_events(&self) -> bool {
        self.compares_checkpoint() && self.bug != Bug::ReadUnsettled
    }

    /// As `hapax.raise_sequences`: `opens` says whether the number of checkpoints is looked at as well.
    fn raise(&self, database: &mut Database, opens: bool) {
        let checkpoint = database.checkpoint;
        if !self.compares_sequence() {
            return;
        }
        let highest = database.events.iter().map(|event| event.id).max();
        let highest = highest.unwrap_or(0).max(checkpoint.high);
        let is_low = database.last < highest;
        let is_uncounted = opens && database.checkpoints < checkpoint.number;
        if !is_low && !is_uncounted {
            return;
        }
        let until = database.last.min(highest);
        database.last = database.last.max(highest);
        database.checkpoints = database.checkpoints.max(checkpoint.number);
        if self.bug == Bug::RaisedAlone {
            return;
        }
        for event in database.events.iter_mut().filter(|event| event.id <= until) {
            database.last += 1;
            event.id = database.last;
        }
        database.events.sort_by_key(|event| event.id);
    }

    fn read(&self, state: &mut State) {
        let Some(mut relay) = state.relay.take() else {
            return;
        };
        let database = &mut state.database;
        let stands = relay.head == (database.checkpoint.high, database.checkpoint.name);
        if self.compares_name() && relay.head.1 != 0 && relay.head.1 != database.name {
            if !stands {
                return;
            }
            self.raise(database, true);
        }
        if self.compares_sequence() && database.last < relay.head.0 {
            if !stands {
                return;
            }
            self.raise(database, false);
        }
        let next = database.events.iter().find(|event| event.id > relay.head.0);
        if let Some(event) = next {
            relay.head = (event.id, database.name);
            relay.held.push(*event);
        }
        state.relay = Some(relay);
    }

    /// What is offered is on record before it leaves: nothing is delivered that cannot be settled.
    fn settle(&self, state: &mut State) {
        let Some(mut relay) = state.relay.take() else {
            return;
        };
        let database = &mut state.database;
        let is_counted = database.checkpoints >= database.checkpoint.number;
        let is_known = relay.newest == database.checkpoint && is_counted;
        let is_here = relay.head.1 == database.name;
        let is_drawn = relay.head.0 <= database.last;
        if self.compares_sequence() && !is_drawn {
            return;
        }
        if self.compares_name() && !is_here || self.compares_checkpoint() && !is_known {
            return;
        }
        // Each read is of one event: it is the last of its read.
        let stands = |event: &Event| database.events.contains(event);
        if self.compares_events() && !relay.held.iter().all(stands) {
            return;
        }
        for event in relay.held.drain(..) {
            state.delivered |= 1_u16 << event.number;
        }
        state.settlements += 1;
        database.checkpoints += 1;
        let checkpoint = Checkpoint {
            high: relay.head.0,
            name: relay.head.1,
            settlement: state.settlements,
            number: database.checkpoints,
        };
        // Of two the one with the higher number counts.
        if checkpoint.number > database.checkpoint.number {
            database.checkpoint = checkpoint;
        }
        relay.newest = checkpoint;
        state.relay = Some(relay);
    }

    /// Whether no action of the relay changes anything.
    fn is_at_rest(&self, state: &State) -> bool {
        let Some(relay) = &state.relay else {
            return false;
        };
        let is_idle = relay.held.is_empty();
        let steps = [Action::Read, Action::Watch];
        is_idle
            && steps
                .iter()
                .all(|step| self.next_state(state, *step).as_ref() == Some(state))
    }
}

impl State {
    /// Commits an event, if its id is not taken: a request fails that draws one that is.
    fn commit(&mut self) {
        self.database.last += 1;
        let id = self.database.last;
        if self.database.events.iter().any(|event| event.id == id) {
            return;
        }
        let number = self.committed;
        self.committed += 1;
        self.database.events.push(Event { id, number });
        self.database.events.sort_by_key(|event| event.id);
    }

    /// Whether an event that was committed after the restore was not delivered.
    fn has_undelivered(&self) -> bool {
        let since = self.restored_after.unwrap_or(0);
        let missing = |number: u8| self.delivered & 1_u16 << number == 0;
        (since..self.committed).any(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::History;
    use crate::explore::check;

    #[test]
    fn no_later_event_is_passed_over_and_every_bug_is_found() {
        check::<History>();
    }
}
