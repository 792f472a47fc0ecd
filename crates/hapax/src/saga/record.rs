//! A saga as it is written down: its row, and one row for each step that has begun.

use std::time::Duration;

use bytes::Bytes;

use super::Refusal;
use crate::{
    clock::Timestamp,
    event::Headers,
    key::{KeyError, Tenant},
    limits::{SAGA_INPUT_BYTES_MAX, SAGA_NAME_BYTES_MAX},
};

/// A saga that is to begin; it exists exactly when the transaction commits that starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSaga {
    /// The service's name for it, such as `chk_0190...`; unique among all sagas.
    pub id: String,
    /// Which definition runs it, and in which version.
    pub kind: Kind,
    /// Whose it is.
    pub tenant: Option<Tenant>,
    /// What its steps are given.
    pub input: Bytes,
    /// What its events and calls carry: the `traceparent` of the request that began it.
    pub headers: Headers,
    /// How long it may take, from its start, before nothing is tried any more.
    pub deadline: Duration,
}

impl NewSaga {
    /// Whether it fits its bounds.
    ///
    /// # Errors
    /// Fails when id or kind is empty or longer than 255 bytes, or the input is longer than 64 KiB.
    pub fn check(&self) -> Result<(), KeyError> {
        check_name(&self.id)?;
        check_name(&self.kind.name)?;
        check_size(&self.input)
    }
}

/// Which definition a saga was begun under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Its name, such as `checkout`.
    pub name: String,
    /// Its version; who does not know it leaves the saga to who does.
    pub version: u32,
}

/// A saga, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaRecord {
    /// The service's name for it.
    pub id: String,
    /// Which definition runs it.
    pub kind: Kind,
    /// Whose it is.
    pub tenant: Option<Tenant>,
    /// What its steps are given.
    pub input: Bytes,
    /// What its events and calls carry.
    pub headers: Headers,
    /// How it stands, and where it is heading.
    pub standing: Standing,
    /// Who had it last: raised whenever it is taken.
    pub epoch: i64,
    /// When it falls due; `None` once it has ended or waits for a person.
    pub wake_at: Option<Timestamp>,
    /// What it waits for until then, for a person.
    pub waiting_for: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Every step that has begun, and every compensation, in the order in which they began.
    pub steps: Vec<StepRecord>,
    /// What it was told from outside, in order.
    pub signals: Vec<Signal>,
}

impl SagaRecord {
    /// The row of a step, or of its compensation.
    pub fn step(&self, name: &str, way: Way) -> Option<&StepRecord> {
        let mut steps = self.steps.iter();
        steps.find(|step| step.name == name && step.way == way)
    }

    /// What a step made, once it is done.
    pub fn made(&self, name: &str) -> Option<&Bytes> {
        let step = self.step(name, Way::Do)?;
        (step.state == StepState::Done).then_some(&step.made)
    }

    /// How it stands once it goes on at `now`: for as long again as it had from its start to its
    /// deadline, which moves with every such word.
    pub(super) fn running_again(&self, now: Timestamp) -> Standing {
        let had = self.standing.deadline_at.since(self.created_at);
        Standing {
            state: State::Running,
            deadline_at: now.after(had),
            ..self.standing.clone()
        }
    }
}

/// How a saga stands, and where it is heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How it stands.
    pub state: State,
    /// Whether it is being undone.
    pub undoing: bool,
    /// Why it is being undone, has failed, or needs attention.
    pub reason: Option<Refusal>,
    /// When nothing is tried any more.
    pub deadline_at: Timestamp,
}

/// How a saga stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It goes forward, or is being undone.
    Running,
    /// Every step is done.
    Completed,
    /// It was refused, and what had been done is undone.
    Failed,
    /// Only a person can say how it goes on.
    NeedsAttention,
}

impl State {
    /// Every state, in the order in which they are reached.
    pub const ALL: [Self; 4] = [
        Self::Running,
        Self::NeedsAttention,
        Self::Completed,
        Self::Failed,
    ];

    /// Its word in tables, answers and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NeedsAttention => "needs_attention",
        }
    }

    /// The state of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing will change any more.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// A step that has begun, or its compensation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The step's name.
    pub name: String,
    /// Whether it is done or undone here.
    pub way: Way,
    /// What is known of it.
    pub state: StepState,
    /// The key that the foreign system was given; the same for every attempt.
    pub provider_key: Option<String>,
    /// What was asked, frozen when it was first meant to be.
    pub request: Bytes,
    /// What it made.
    pub made: Bytes,
    /// Why it was refused, or what went wrong the last time.
    pub error: Option<Refusal>,
    /// How often it was tried: counted before each try.
    pub attempts: u32,
    /// Before when it is not tried again.
    pub next_at: Timestamp,
    /// When it was first meant; of a foreign step, when it was first called under its key.
    pub began_at: Timestamp,
    /// When its end was known.
    pub ended_at: Option<Timestamp>,
}

/// Which way a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It is done.
    Do,
    /// It is undone.
    Undo,
}

impl Way {
    /// Its word in tables and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }

    /// The way of this word.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Do, Self::Undo]
            .into_iter()
            .find(|way| way.as_str() == word)
    }
}

/// What is known of a step that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// It was meant; of a foreign step nobody here knows whether it happened.
    Open,
    /// It happened.
    Done,
    /// It did not happen and will not.
    Refused,
}

impl StepState {
    /// Its word in tables and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }

    /// The state of this word.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Open, Self::Done, Self::Refused]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// Something that a saga was told from outside, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// What kind of word it was, such as `payment.succeeded`.
    pub name: String,
    /// What it said.
    pub payload: Bytes,
    /// When it came.
    pub received_at: Timestamp,
}

impl Signal {
    /// Whether a word from outside fits its bounds.
    ///
    /// # Errors
    /// Fails when the name is empty or longer than 255 bytes, or the payload is longer than 64 KiB.
    pub fn check(name: &str, payload: &[u8]) -> Result<(), KeyError> {
        check_name(name)?;
        check_size(payload)
    }
}

/// A saga in somebody's hands: whoever takes it next raises the epoch, and fences this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which saga.
    pub id: String,
    /// Which ownership.
    pub epoch: i64,
    /// Whose it is: its events are of this tenant.
    pub tenant: Option<Tenant>,
    /// What its events carry.
    pub headers: Headers,
}

impl Owned {
    /// The ownership under which `saga` was read.
    pub fn of(saga: &SagaRecord) -> Self {
        Self {
            id: saga.id.clone(),
            epoch: saga.epoch,
            tenant: saga.tenant.clone(),
            headers: saga.headers.clone(),
        }
    }
}

/// What is asked of a list of sagas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this name only.
    pub name: Option<String>,
    /// Of this version of its definition only.
    pub version: Option<u32>,
    /// In this state only.
    pub state: Option<State>,
    /// Beyond this one, by id.
    pub after: Option<String>,
}

fn check_name(name: &str) -> Result<(), KeyError> {
    match name.len() {
        0 => Err(KeyError::Empty),
        bytes if bytes > SAGA_NAME_BYTES_MAX => {
            let max = SAGA_NAME_BYTES_MAX;
            Err(KeyError::TooLong { bytes, max })
        }
        _ => Ok(()),
    }
}

fn check_size(said: &[u8]) -> Result<(), KeyError> {
    let (bytes, max) = (said.len(), SAGA_INPUT_BYTES_MAX);
    if bytes > max {
        return Err(KeyError::TooLong { bytes, max });
    }
    Ok(())
}
