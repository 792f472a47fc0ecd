//! Two senders, one consumer: a message is known by its source, its id and its consumer.
//!
//! Each sender has one message, and both chose the same id; the payloads are the same or not. A sender sends until it
//! is answered. The receiver judges a message, writes the id with the effect in one commit, and then answers; it dies
//! anywhere in between, and answers are lost. It may also write the effect first, and the id with the commit: if the
//! id is known then, nothing is committed, and the message is judged.

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
    /// The commit inserts the id unless it is known, and does not look at whether it did.
    KnownIgnored,
    /// The effect is committed before the id.
    EffectApart,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Send(usize),
    Look(usize),
    /// The effect is written before the message is judged.
    Write(usize),
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
    /// Its effect is written in an open transaction, whose commit accepts it.
    Written,
    /// That commit has failed, and nothing of it is committed.
    Lost,
    Taken,
    Refused,
}

/// The state of a sender's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum SenderState {
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
    told: [SenderState; SENDERS],
    /// Attempts that the inbox has recognized as duplicates.
    duplicates: u8,
    /// Whether a commit has failed because its message was known.
    has_lost: bool,
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
        (Bug::KnownIgnored, Some(ONE_EFFECT)),
        (Bug::EffectApart, Some(ONE_EFFECT)),
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
            told: [SenderState::Nothing; SENDERS],
            duplicates: 0,
            has_lost: false,
        };
        vec![state(true), state(false)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for sender in 0..SENDERS {
            // It does not know what became of the attempts before.
            if state.told[sender] == SenderState::Nothing && state.sent[sender] < self.sends {
                actions.push(Action::Send(sender));
            }
        }
        for (place, (_, at)) in state.under_way.iter().enumerate() {
            match at {
                At::Sent if self.bug == Bug::LookThenWrite => actions.push(Action::Look(place)),
                At::Sent => actions.extend([Action::Write(place), Action::Commit(place)]),
                At::FoundNew | At::Written | At::Lost => actions.push(Action::Commit(place)),
                At::Taken | At::Refused => actions.push(Action::Answer(place)),
            }
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
            Action::Write(place) => {
                let (sender, _) = state.under_way[place];
                state.under_way[place].1 = At::Written;
                state.effects[sender] += u8::from(self.bug == Bug::EffectApart);
            }
            Action::Commit(place) if state.under_way[place].1 == At::Written => {
                self.commit_written(&mut state, place);
            }
            Action::Commit(place) => self.commit(&mut state, place),
            Action::Answer(place) => {
                let (sender, at) = state.under_way.remove(place);
                state.told[sender] = match at {
                    At::Refused => SenderState::Refused,
                    _ => SenderState::Taken,
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
                senders.all(|(told, effects)| *told != SenderState::Taken || effects > 0)
            }),
            Property::always(NOBODY_ELSES, |_, state: &State| {
                !state.told.contains(&SenderState::Refused)
            }),
            Property::sometimes("a message that comes again is known", |_, state: &State| {
                state.duplicates > 0
            }),
            Property::sometimes("a commit finds its message known", |_, state: &State| {
                state.has_lost
            }),
            Property::sometimes("both messages have their effect", |_, state: &State| {
                state.told == [SenderState::Taken; SENDERS] && state.effects == [1; SENDERS]
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

    /// An effect that was written before its message was judged: the id and the effect, or nothing.
    fn commit_written(&self, state: &mut State, place: usize) {
        let (sender, _) = state.under_way[place];
        let is_known = self.judged(state, sender).is_some();
        if is_known && self.bug != Bug::KnownIgnored {
            state.under_way[place].1 = At::Lost;
            state.has_lost = true;
            return;
        }
        state.under_way[place].1 = At::Taken;
        state.known[sender] = true;
        state.effects[sender] += u8::from(self.bug != Bug::EffectApart);
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
