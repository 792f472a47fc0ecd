//! Checkers of a run: what must hold no matter what was killed.
//!
//! A checker is a pure function from evidence to violations. There is one checker per noun. For
//! each violation, a test adds it to valid evidence and expects the checker to find it.

mod keys;
mod orders;
mod money;
mod events;
mod deliveries;
mod mails;
mod tests;

use super::evidence::Evidence;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    #[error("{tenant}'s request {key} was never answered")]
    Unanswered { tenant: &'static str, key: String },
    #[error("{tenant}'s request {key} was answered {status}: {body}")]
    UnexpectedAnswer {
        tenant: &'static str,
        key: String,
        status: u16,
        body: String,
    },
    #[error("{tenant}'s key {key} was answered in two ways: {first}, then {later}")]
    ReplayDiffers {
        tenant: &'static str,
        key: String,
        first: String,
        later: String,
    },
    #[error("{tenant}'s key {key} ran {times} times")]
    RanAgain {
        tenant: &'static str,
        key: String,
        times: usize,
    },
    #[error("{tenant}'s key {key} was answered {status} for another request")]
    MismatchTaken {
        tenant: &'static str,
        key: String,
        status: u16,
    },
    #[error("acknowledged order {id} is lost")]
    LostOrder { id: String },
    #[error("order {id} is not what was acknowledged")]
    ChangedOrder { id: String },
    #[error("the key {note} made {orders} orders")]
    TwoEffects { note: String, orders: usize },
    #[error("order {id} was never acknowledged")]
    UnaskedOrder { id: String },
    #[error("charge {charge_id} of {amount} was refunded by {refunded}")]
    RefundedTooMuch {
        charge_id: String,
        amount: i64,
        refunded: i64,
    },
    #[error("{kind} entries of {charge_id} are {found:?}, acknowledged were {acknowledged:?}")]
    WrongEntries {
        charge_id: String,
        kind: &'static str,
        found: Vec<i64>,
        acknowledged: Vec<i64>,
    },
    #[error(
        "at the provider {kind}s of {charge_id} are {found:?}, acknowledged were {acknowledged:?}"
    )]
    WrongAtProvider {
        charge_id: String,
        kind: &'static str,
        found: Vec<i64>,
        acknowledged: Vec<i64>,
    },
    #[error("{kind} of {subject} was never delivered")]
    NeverDelivered { kind: &'static str, subject: String },
    #[error("{kind} of {subject} is {events} events")]
    TwoEvents {
        kind: &'static str,
        subject: String,
        events: usize,
    },
    #[error("nothing acknowledged explains event {event_id}: {body}")]
    UnexplainedEvent { event_id: String, body: String },
    #[error("event {event_id} does not say what was acknowledged: {body}")]
    ChangedEvent { event_id: String, body: String },
    #[error("event {event_id} was delivered with another body the second time")]
    ChangedDelivery { event_id: String },
    #[error("nothing explains why event {event_id} was delivered again at {again:?}")]
    UnexplainedDuplicate {
        event_id: String,
        again: std::time::Duration,
    },
    #[error("event {event_id} had {effects} effects at {receiver}")]
    NotOneEffect {
        event_id: String,
        receiver: &'static str,
        effects: u64,
    },
    #[error("a delivery was refused: {why}")]
    RefusedDelivery { why: String },
    #[error("{email} was sent {mails} welcome mails")]
    NotOneMail { email: String, mails: usize },
    #[error("{mails} mails were caught, {signups} were due")]
    UnexplainedMail { mails: usize, signups: usize },
}

/// Returns all violations of a run.
pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut found = keys::violations(evidence);
    found.extend(orders::violations(evidence));
    found.extend(money::violations(evidence));
    found.extend(events::violations(evidence));
    found.extend(deliveries::violations(evidence));
    found.extend(mails::violations(evidence));
    found
}
