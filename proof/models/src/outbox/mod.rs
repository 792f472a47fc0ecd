//! From a committed event to one effect: outbox, relay, wire, inbox.
//!
//! Two relays share a destination that keeps order within a key; one has the partition, and either may. Events are read,
//! put on record, offered and settled. Relays die, and lose their lease while they live and go on. Offers and
//! answers are lost, repeated and late. The receiver accepts an id and writes the effect in one transaction, then
//! acknowledges.

mod relay;
mod state;

use stateright::{Model, Property};

use self::state::{At, EVENTS, Emitted, Hand, KEYS, Offer, Parked, Relay, State};
use crate::explore::Design;

/// A destination and its relays.
#[derive(Debug)]
pub(crate) struct Outbox {
    bug: Bug,
    large: bool,
}

/// The bugs of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// An event is offered before its transaction has committed.
    PublishBeforeCommit,
    /// What is about to leave is settled.
    MarkSentBeforeSend,
    /// What is about to leave is not on record.
    OfferBeforeSettle,
    /// A settlement does not ask whose the partition is.
    NoFence,
    /// Both relays have the same name, and a relay with the owner's name may take its partitions.
    OneName,
    /// The checkpoint does not remember what is settled beyond the frontier.
    ForgetsSettled,
    /// An event that fails does not hold its key up.
    KeyNotHeld,
    /// An event whose relay died does not hold its key up.
    InterruptedNotHeld,
    /// The receiver commits the effect, then the id.
    InboxApart,
    /// The receiver acknowledges, then commits.
    AckBeforeCommit,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Commit(usize),
    RollBack(usize),
    LapseLease,
    /// By a relay that is not running.
    Open(usize),
    CrashRelay(usize),
    Read(usize),
    ReadDue(usize, usize),
    Settle(usize),
    Offer(usize, usize),
    TimeOut(usize, usize),
    Accept(Offer),
    Acknowledge(Offer),
    /// On the way there or back, or with a receiver that dies.
    Lose(Offer),
    Duplicate(Offer),
}

const DELIVERED: &str = "every committed event has its effect, or is a dead letter";
const FOUNDED: &str = "nothing is delivered that was not committed";
const ONE_EFFECT: &str = "one effect for each message id";
const EXPLAINED: &str = "every duplicate is explained";
const ORDER: &str = "first deliveries of a key keep its order";
const COUNTED: &str = "no offer leaves that is not on record";
const ROBBED: &str = "the partition of a live relay is not taken";
const FENCED: &str = "a fenced relay writes nothing";

impl Design for Outbox {
    type Bug = Bug;

    const NAME: &'static str = "outbox";
    const BUGS: &'static [(Bug, Option<&'static str>)] = &[
        (Bug::None, None),
        (Bug::PublishBeforeCommit, Some(FOUNDED)),
        (Bug::MarkSentBeforeSend, Some(DELIVERED)),
        (Bug::OfferBeforeSettle, Some(COUNTED)),
        (Bug::NoFence, Some(FENCED)),
        (Bug::NoFence, Some(ORDER)),
        (Bug::OneName, Some(ROBBED)),
        (Bug::ForgetsSettled, Some(EXPLAINED)),
        (Bug::KeyNotHeld, Some(ORDER)),
        (Bug::InterruptedNotHeld, Some(ORDER)),
        (Bug::InboxApart, Some(ONE_EFFECT)),
        (Bug::AckBeforeCommit, Some(DELIVERED)),
    ];

    fn new(bug: Bug, large: bool) -> Self {
        Self { bug, large }
    }
}

impl Model for Outbox {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let [done, open, gone] = [Emitted::Committed, Emitted::Open, Emitted::RolledBack];
        let all = |faults| State::new([done, done, open], faults);
        if self.large {
            vec![all(2)]
        } else {
            vec![all(1), State::new([done, gone, open], 2)]
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State {
            partition, faults, ..
        } = state;
        let may_fail = *faults > 0;
        for (event, emitted) in state.emitted.iter().enumerate() {
            if *emitted == Emitted::Open {
                actions.extend([Action::Commit(event), Action::RollBack(event)]);
            }
        }
        let mut relays = state.relays.iter().flatten();
        let is_owned = relays.any(|relay| relay.epoch == partition.epoch);
        let lapses = partition.held && (!is_owned || may_fail);
        actions.extend(lapses.then_some(Action::LapseLease));
        let idle = state.relays.iter().position(Option::is_none);
        let is_free = !partition.held || self.bug == Bug::OneName;
        actions.extend(idle.filter(|_| is_free).map(Action::Open));
        for (place, relay) in state.relays.iter().enumerate() {
            if let Some(relay) = relay {
                self.work(state, place, relay, actions);
            }
        }
        for offer in &state.wire {
            let is_accepted = offer.at == At::Accepted;
            actions.push(if is_accepted {
                Action::Acknowledge(*offer)
            } else {
                Action::Accept(*offer)
            });
            actions.extend(may_fail.then_some(Action::Lose(*offer)));
            let repeats = may_fail && offer.at == At::Sent;
            actions.extend(repeats.then_some(Action::Duplicate(*offer)));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Commit(event) => state.emitted[event] = Emitted::Committed,
            Action::RollBack(event) => state.emitted[event] = Emitted::RolledBack,
            Action::LapseLease => {
                let mut relays = state.relays.iter().flatten();
                let is_owned = relays.any(|relay| relay.epoch == state.partition.epoch);
                state.faults -= u8::from(is_owned);
                state.partition.held = false;
            }
            Action::Open(place) => {
                let mut relays = state.relays.iter().flatten();
                let is_owned = relays.any(|relay| relay.epoch == state.partition.epoch);
                state.told.robbed |= is_owned && state.partition.held;
                state.relays[place] = Some(self.open(&mut state));
            }
            Action::CrashRelay(place) => {
                state.faults -= 1;
                state.relays[place] = None;
            }
            Action::Read(place) => Self::read(state.relays[place].as_mut()?, state.emitted),
            Action::ReadDue(place, event) => {
                state.relays[place].as_mut()?.hand[event] = Hand::Waits;
            }
            Action::Settle(place) => {
                let mut relay = state.relays[place].take()?;
                let is_late = relay.epoch != state.partition.epoch;
                if self.settle(&mut state.partition, &mut relay) {
                    state.told.late |= is_late;
                    state.relays[place] = Some(relay);
                }
            }
            Action::Offer(place, event) => {
                let relay = state.relays[place].as_mut()?;
                state.told.uncounted |= relay.hand[event] != Hand::Chosen;
                state.wire.push(Self::offer(relay, event));
            }
            Action::TimeOut(place, event) => {
                let relay = state.relays[place].as_mut()?;
                let is_this = |it: &Offer| it.event == event && it.epoch == relay.epoch;
                state.faults -= u8::from(state.wire.iter().any(is_this));
                state.told.excuses[event] += 1;
                self.fail(relay, event);
            }
            Action::Accept(offer) => self.accept(&mut state, offer),
            Action::Acknowledge(offer) => {
                remove(&mut state.wire, offer);
                acknowledge(&mut state, offer);
            }
            Action::Lose(offer) => {
                state.faults -= 1;
                remove(&mut state.wire, offer);
            }
            Action::Duplicate(offer) => {
                state.faults -= 1;
                state.told.excuses[offer.event] += 1;
                state.wire.push(offer);
            }
        }
        Some(state.sorted())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOUNDED, |_, state: &State| !state.told.unfounded),
            Property::always(ONE_EFFECT, |_, state: &State| {
                state.receiver.effects.iter().all(|effects| *effects <= 1)
            }),
            Property::always(EXPLAINED, |_, state: &State| {
                let told = &state.told;
                (0..EVENTS).all(|event| told.arrivals[event] <= 1 + told.excuses[event])
            }),
            Property::always(ORDER, |_, state: &State| !state.told.inverted),
            Property::always(COUNTED, |_, state: &State| !state.told.uncounted),
            Property::always(FENCED, |_, state: &State| !state.told.late),
            Property::always(ROBBED, |_, state: &State| !state.told.robbed),
            Property::always(DELIVERED, |_, state: &State| {
                !state.is_at_rest() || (0..EVENTS).all(|event| is_done_with(state, event))
            }),
            Property::sometimes("all is delivered", |_, state: &State| {
                state.is_at_rest() && state.receiver.effects == [1; EVENTS]
            }),
            Property::sometimes("a duplicate", |_, state: &State| {
                state.told.arrivals.iter().any(|arrivals| *arrivals > 1)
            }),
            Property::sometimes(
                "two relays that both take themselves for the owner",
                |_, state: &State| state.relays.iter().all(Option::is_some),
            ),
            Property::sometimes("an event that waits behind its key", |_, state: &State| {
                state.partition.parked.contains(&Some(Parked::Blocked))
            }),
            Property::sometimes("a dead letter", |_, state: &State| {
                state.partition.parked.contains(&Some(Parked::Dead))
            }),
        ]
    }
}

impl Outbox {
    /// The possible actions of a running relay.
    fn work(&self, state: &State, place: usize, relay: &Relay, actions: &mut Vec<Action>) {
        let State {
            partition, faults, ..
        } = state;
        let may_fail = *faults > 0;
        actions.extend(may_fail.then_some(Action::CrashRelay(place)));
        actions.extend(self.can_read(state, relay).then_some(Action::Read(place)));
        actions.extend(Self::has_a_turn(relay).then_some(Action::Settle(place)));
        let chosen = Self::choose(relay);
        for event in 0..EVENTS {
            let is_due = matches!(
                partition.parked[event],
                Some(Parked::Retrying { begun: false, .. })
            );
            let is_here = relay.hand[event] != Hand::Absent;
            let is_this = |it: &Offer| it.event == event && it.epoch == relay.epoch;
            let is_coming = state.wire.iter().any(is_this);
            let leaves_early = self.bug == Bug::OfferBeforeSettle && chosen.contains(&event);
            actions.extend((is_due && !is_here).then_some(Action::ReadDue(place, event)));
            match relay.hand[event] {
                Hand::Chosen => actions.push(Action::Offer(place, event)),
                Hand::Waits if leaves_early => actions.push(Action::Offer(place, event)),
                Hand::OnTheWire if !is_coming || may_fail => {
                    actions.push(Action::TimeOut(place, event));
                }
                _ => {}
            }
        }
    }

    /// The receiver's handling of an offer: id and effect in one commit, then the acknowledgement.
    fn accept(&self, state: &mut State, offer: Offer) {
        remove(&mut state.wire, offer);
        let event = offer.event;
        let receiver = &mut state.receiver;
        let is_new = !receiver.inbox[event];
        let effect = u8::from(is_new);
        let at = match (offer.at, self.bug) {
            (At::Sent, Bug::InboxApart) if is_new => {
                receiver.effects[event] += effect;
                At::HasEffect
            }
            (At::Sent, Bug::AckBeforeCommit) => At::Uncommitted,
            (At::HasEffect, _) => {
                receiver.inbox[event] = true;
                At::Accepted
            }
            _ => {
                receiver.effects[event] += effect;
                receiver.inbox[event] = true;
                At::Accepted
            }
        };
        if offer.at == At::Sent {
            note_arrival(state, event);
        }
        if at == At::Uncommitted {
            acknowledge(state, offer);
        }
        if offer.at != At::Uncommitted {
            state.wire.push(Offer { at, ..offer });
        }
    }
}

fn note_arrival(state: &mut State, event: usize) {
    let told = &mut state.told;
    let is_first = told.arrivals[event] == 0;
    let mut earlier = (0..event).filter(|other| KEYS[*other] == KEYS[event]);
    let is_missing =
        |other: usize| told.arrivals[other] == 0 && state.emitted[other] == Emitted::Committed;
    told.inverted |= is_first && earlier.any(is_missing);
    told.unfounded |= state.emitted[event] != Emitted::Committed;
    told.arrivals[event] += 1;
}

/// Acknowledges the offer to its relay, if the relay still waits for it.
fn acknowledge(state: &mut State, offer: Offer) {
    let mut relays = state.relays.iter_mut().flatten();
    let waits =
        |it: &&mut Relay| it.epoch == offer.epoch && it.hand[offer.event] == Hand::OnTheWire;
    if let Some(relay) = relays.find(waits) {
        Outbox::arrived(relay, offer.event);
    }
}

/// Whether an event has its effect, is given up, waits for a dead letter, or does not exist.
fn is_done_with(state: &State, event: usize) -> bool {
    let is_parked = matches!(
        state.partition.parked[event],
        Some(Parked::Dead | Parked::Blocked)
    );
    let is_none = state.emitted[event] != Emitted::Committed;
    state.receiver.effects[event] > 0 || is_parked || is_none
}

fn remove(wire: &mut Vec<Offer>, offer: Offer) {
    let place = wire.iter().position(|it| *it == offer);
    wire.remove(place.expect("what is acted on is there"));
}

#[cfg(test)]
mod tests {
    use super::Outbox;
    use crate::explore::check;

    #[test]
    fn an_event_has_one_effect_and_every_bug_is_found() {
        check::<Outbox>();
    }
}
