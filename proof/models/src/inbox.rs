//! Two senders, one consumer: a message is known by its source, its id and its consumer.
//!
//! Each sender has one message, and both chose the same id; the payloads are the same or not. A sender sends until it
//! is answered. The receiver judges a message, writes the id with the effect in one commit, and then answers; it dies
//! anywhere in between, and answers are lost.

use stateright::{Model, Property};

use crate::explore::Design;

/// Senders with a message each.
const SENDERS: usize = 2;

/// A consumer and its senders.
#[derive(Debug)]
pub(crate) struct Inbox {
    bug: Bug,
    sends: u8,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// An id is considered unique, regardless of its source.
    SourceIgnored,
    /// Whether the id is known is asked before the transaction that writes it.
    LookThenWrite,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Send(usize),
    Look(usize),
    Commit(usize),
    Answer(usize),
    /// On the way there or back, or with a receiver that dies.
    Lose(usize),
}

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    Sent,
    /// It was found to be new, and nothing of it is committed.
    FoundNew,
    Taken,
    Refused,
}

/// The state of a sender's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    #[default]
    Nothing,
    Taken,
    Refused,
}

/// All that there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Whether both messages say the same.
    alike: bool,
    sent: [u8; SENDERS],
    /// Attempts under way: whose, and where.
    under_way: Vec<(usize, At)>,
    /// Rows of the inbox, by who sent the message.
    known: [bool; SENDERS],
    effects: [u8; SENDERS],
    told: [Told; SENDERS],
    /// Attempts that the inbox has recognized as duplicates.
    duplicates: u8,
}

const ONE_EFFECT: &str = "one effect for each message of each source";
const ACKNOWLEDGED: &str = "what is acknowledged has its effect";
const NOBODY_ELSES: &str = "no message is refused because of another source's message";

impl Design for Inbox {
    type Bug = Bug;

    const NAME: &'static str = "inbox";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::SourceIgnored, Some(ACKNOWLEDGED)),
        (Bug::SourceIgnored, Some(NOBODY_ELSES)),
        (Bug::LookThenWrite, Some(ONE_EFFECT)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        let sends = if large { 4 } else { 3 };
        Self { bug, sends }
    }
}

impl Model for Inbox {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = |alike| State {
            alike,
            sent: [0; SENDERS],
            under_way: Vec::new(),
            known: [false; SENDERS],
            effects: [0; SENDERS],
            told: [Told::Nothing; SENDERS],
            duplicates: 0,
        };
        vec![state(true), state(false)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for sender in 0..SENDERS {
            // It does not know what became of the attempts before.
            if state.told[sender] == Told::Nothing && state.sent[sender] < self.sends {
                actions.push(Action::Send(sender));
            }
        }
        for (place, (_, at)) in state.under_way.iter().enumerate() {
            actions.push(match at {
                At::Sent if self.bug == Bug::LookThenWrite => Action::Look(place),
                At::Sent | At::FoundNew => Action::Commit(place),
                At::Taken | At::Refused => Action::Answer(place),
            });
            actions.push(Action::Lose(place));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Send(sender) => {
                state.sent[sender] += 1;
                state.under_way.push((sender, At::Sent));
            }
            Action::Look(place) => {
                let (sender, _) = state.under_way[place];
                state.under_way[place].1 = match self.judged(&state, sender) {
                    None => At::FoundNew,
                    Some(known) => known,
                };
            }
            Action::Commit(place) => self.commit(&mut state, place),
            Action::Answer(place) => {
                let (sender, at) = state.under_way.remove(place);
                state.told[sender] = match at {
                    At::Refused => Told::Refused,
                    _ => Told::Taken,
                };
            }
            Action::Lose(place) => {
                state.under_way.remove(place);
            }
        }
        state.under_way.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_EFFECT, |_, state: &State| {
                state.effects.iter().all(|effects| *effects <= 1)
            }),
            Property::always(ACKNOWLEDGED, |_, state: &State| {
                let mut senders = state.told.iter().zip(state.effects);
                senders.all(|(told, effects)| *told != Told::Taken || effects > 0)
            }),
            Property::always(NOBODY_ELSES, |_, state: &State| {
                !state.told.contains(&Told::Refused)
            }),
            Property::sometimes("a message that comes again is known", |_, state: &State| {
                state.duplicates > 0
            }),
            Property::sometimes("both messages have their effect", |_, state: &State| {
                state.told == [Told::Taken; SENDERS] && state.effects == [1; SENDERS]
            }),
        ]
    }
}

impl Inbox {
    /// The inbox's result for a sender's message; `None` if it is new.
    fn judged(&self, state: &State, sender: usize) -> Option<At> {
        let is_same = |other: usize| self.bug == Bug::SourceIgnored || other == sender;
        let known = (0..SENDERS).find(|other| state.known[*other] && is_same(*other))?;
        let says_the_same = known == sender || state.alike;
        Some(if says_the_same {
            At::Taken
        } else {
            At::Refused
        })
    }

    /// The id and the effect, in one commit.
    fn commit(&self, state: &mut State, place: usize) {
        let (sender, at) = state.under_way[place];
        // The bug: a message that was new before is not checked again.
        let known = match at {
            At::FoundNew => None,
            _ => self.judged(state, sender),
        };
        state.under_way[place].1 = known.unwrap_or(At::Taken);
        if known.is_none() {
            state.known[sender] = true;
            state.effects[sender] += 1;
        } else {
            state.duplicates = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Inbox;
    use crate::explore::check;

    #[test]
    fn a_source_has_ids_of_its_own_and_every_bug_is_found() {
        check::<Inbox>();
    }
}
