//! What a saga does, step by step, and what undoes it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use uuid::Builder;

use super::{Found, Kind, NewSaga, Outcome, Refusal, SagaRecord, State, Way};
use crate::{
    event::Headers,
    key::{FingerprintBuilder, Tenant},
    limits,
    sink::BoxError,
};

/// The version of what provider keys are made of; 1 is that of phased requests.
const PROVIDER_KEY_VERSION: u8 = 2;

/// The steps of one kind of saga.
///
/// `Tx` is the transaction of the store that keeps it.
pub struct Definition<Tx> {
    kind: Kind,
    steps: Vec<Step<Tx>>,
    deadline: Duration,
    ended: Option<Arc<dyn Ended<Tx>>>,
}

impl<Tx> Definition<Tx> {
    /// A saga of this name and version, without steps.
    ///
    /// Steps that are added, removed or mean something else ask for another version: sagas under
    /// way go on under the one that they began with, where a worker still knows it.
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        Self {
            kind: Kind {
                name: name.into(),
                version,
            },
            steps: Vec::new(),
            deadline: limits::SAGA_DEADLINE,
            ended: None,
        }
    }

    /// Adds a step behind the others.
    ///
    /// # Panics
    /// When a step of this name is there.
    #[must_use]
    pub fn step(mut self, step: Step<Tx>) -> Self {
        let is_new = self.steps.iter().all(|other| other.name != step.name);
        assert!(is_new, "a saga has two steps named {}", step.name);
        self.steps.push(step);
        self
    }

    /// Gives up this long after the start: what is unknown then is left to a person.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Has `ended` write its rows and events in the transaction that ends a saga.
    #[must_use]
    pub fn ended(self, ended: impl Ended<Tx>) -> Self {
        let ended: Option<Arc<dyn Ended<Tx>>> = Some(Arc::new(ended));
        Self { ended, ..self }
    }

    /// A saga of this kind, to be started in a transaction.
    pub fn begin(&self, id: impl Into<String>, tenant: Option<Tenant>, input: Bytes) -> NewSaga {
        NewSaga {
            id: id.into(),
            kind: self.kind.clone(),
            tenant,
            input,
            headers: Headers::new(),
            deadline: self.deadline,
        }
    }

    /// Its name and version.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Its steps, in order.
    pub fn steps(&self) -> &[Step<Tx>] {
        &self.steps
    }

    pub(crate) fn on_end(&self) -> Option<&dyn Ended<Tx>> {
        self.ended.as_deref()
    }
}

/// One step.
pub struct Step<Tx> {
    pub(crate) name: &'static str,
    pub(crate) act: Act<Tx>,
    pub(crate) undo: Option<Act<Tx>>,
    pub(crate) is_pivot: bool,
    pub(crate) undo_unknown: bool,
    pub(crate) settled_by: Option<&'static str>,
    pub(crate) patience: Patience,
}

impl<Tx> Step<Tx> {
    /// A step in this database.
    pub fn local(name: &'static str, act: impl Local<Tx>) -> Self {
        Self::of(name, Act::Local(Arc::new(act)))
    }

    /// A step in a foreign system.
    pub fn foreign(name: &'static str, act: impl Foreign) -> Self {
        Self::of(name, Act::Foreign(Arc::new(act)))
    }

    /// A step that waits until the saga is told `signal`; refused after `timeout`.
    pub fn wait(name: &'static str, signal: &'static str, timeout: Duration) -> Self {
        Self::of(name, Act::Wait { signal, timeout })
    }

    /// A step that is done once this time has gone by.
    pub fn pause(name: &'static str, pause: Duration) -> Self {
        Self::of(name, Act::Pause(pause))
    }

    fn of(name: &'static str, act: Act<Tx>) -> Self {
        Self {
            name,
            act,
            undo: None,
            is_pivot: false,
            undo_unknown: false,
            settled_by: None,
            patience: Patience::default(),
        }
    }

    /// What undoes it, in this database.
    #[must_use]
    pub fn undo_local(mut self, undo: impl Local<Tx>) -> Self {
        self.undo = Some(Act::Local(Arc::new(undo)));
        self
    }

    /// What undoes it, in the foreign system.
    #[must_use]
    pub fn undo_foreign(mut self, undo: impl Foreign) -> Self {
        self.undo = Some(Act::Foreign(Arc::new(undo)));
        self
    }

    /// Once it is done the saga only goes forward.
    #[must_use]
    pub fn pivot(mut self) -> Self {
        self.is_pivot = true;
        self
    }

    /// What undoes it may be called while nobody knows whether it happened.
    ///
    /// That is so where the foreign system takes back by key what it has not seen yet, and refuses
    /// it when it comes late.
    #[must_use]
    pub fn undo_unknown(mut self) -> Self {
        self.undo_unknown = true;
        self
    }

    /// The saga may be told of its outcome: `signal` settles it as done, with what that said.
    #[must_use]
    pub fn settled_by(mut self, signal: &'static str) -> Self {
        self.settled_by = Some(signal);
        self
    }

    /// How it is tried again.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What is to be done on this way.
    pub(crate) fn act(&self, way: Way) -> Option<&Act<Tx>> {
        match way {
            Way::Do => Some(&self.act),
            Way::Undo => self.undo.as_ref(),
        }
    }
}

/// What a step does, or what undoes it.
pub enum Act<Tx> {
    /// Rows and events in this database.
    Local(Arc<dyn Local<Tx>>),
    /// A call to a foreign system.
    Foreign(Arc<dyn Foreign>),
    /// Waiting for a word from outside.
    Wait {
        /// The word.
        signal: &'static str,
        /// For how long.
        timeout: Duration,
    },
    /// Waiting for a time to go by.
    Pause(Duration),
}

/// How a step is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long one call may take; less than half a lease.
    pub call: Duration,
    /// The wait behind the first try; it doubles with each, with jitter that only adds.
    pub pause: Duration,
    /// The longest such wait.
    pub pause_max: Duration,
    /// How long, from the first call, a foreign system is called again under the same key; then it
    /// is looked up instead. Providers forget their keys: stay within what yours promises.
    pub window: Duration,
    /// How long behind the window a call that was given up may still arrive: only then counts that
    /// the far side has never seen the key.
    pub quiet: Duration,
}

impl Default for Patience {
    /// Calls of 4 s, repeated after 200 ms, 400 ms and so on up to a minute, for one hour.
    fn default() -> Self {
        Self {
            call: limits::SAGA_CALL,
            pause: limits::SAGA_PAUSE.0,
            pause_max: limits::SAGA_PAUSE.1,
            window: limits::SAGA_WINDOW,
            quiet: limits::SAGA_QUIET,
        }
    }
}

impl Patience {
    /// How long to wait behind try number `attempts` (from 1); `unit` is uniform in `0.0..1.0`.
    pub fn after(&self, attempts: u32, unit: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(20);
        let pause = self.pause.saturating_mul(1 << doublings);
        let pause = pause.min(self.pause_max);
        pause + pause.mul_f64(unit / 2.0)
    }

    /// The longest wait between two tries: for the next one, or until no call is on its way any more.
    pub(super) fn wait_max(&self) -> Duration {
        self.pause_max.saturating_mul(2).max(self.quiet)
    }

    /// How long from the first call on the far side is taken to remember a key.
    pub(super) fn memory(&self) -> Duration {
        limits::SAGA_MEMORY.max(self.window.saturating_mul(2))
    }
}

/// A step in this database.
pub trait Local<Tx>: Send + Sync + 'static {
    /// Writes its rows and events in `tx`, which commits with the step's own row.
    ///
    /// Returns what it made, for the steps behind it; or why it is refused, and then nothing of
    /// `tx` is kept. It runs again when its transaction is lost, and only then.
    ///
    /// # Errors
    /// What fails is rolled back and tried again.
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>>;
}

/// A step in a foreign system.
pub trait Foreign: Send + Sync + 'static {
    /// What is to be asked; it is frozen in a commit before the first call.
    ///
    /// # Errors
    /// What fails is tried again.
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError>;

    /// Asks for it, once, under the key of `call`.
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>>;

    /// Asks what the foreign system knows about the key of `call`; nobody is calling then.
    ///
    /// That nothing happened is believed for a day from the first call, or for twice the window of its
    /// [`Patience`] where that is longer: then the foreign system may have forgotten the key.
    ///
    /// `None` where it has no such question.
    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        let _ = call;
        None
    }
}

/// What happens in the transaction that ends a saga.
pub trait Ended<Tx>: Send + Sync + 'static {
    /// Writes the rows and events that tell of the end.
    ///
    /// # Errors
    /// What fails is rolled back and tried again, until an hour behind the deadline: then a person is
    /// asked.
    fn write<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
        state: State,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// One call to a foreign system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which saga calls.
    pub saga: String,
    /// Whose it is.
    pub tenant: Option<Tenant>,
    /// The key to call under: the same for every attempt.
    pub key: String,
    /// What is asked, as it was frozen.
    pub request: Bytes,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// What travels along: the `traceparent` of the request that began it all.
    pub headers: Headers,
}

/// The key under which a saga calls a foreign system for a step, or for what undoes it.
///
/// It reads as a UUID (version 8) and is the same for every attempt. Another saga, step or way
/// makes another one, and so does a saga of the same id that was begun at another time.
pub fn provider_key(saga: &SagaRecord, step: &str, way: Way) -> String {
    let hash = FingerprintBuilder::new(PROVIDER_KEY_VERSION)
        .part(saga.id.as_bytes())
        .part(&saga.created_at.as_millis().to_be_bytes())
        .part(step.as_bytes())
        .part(way.as_str().as_bytes())
        .finish();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

impl<Tx> fmt::Debug for Definition<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("kind", &self.kind)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl<Tx> fmt::Debug for Step<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Step").field(&self.name).finish()
    }
}

impl<Tx> fmt::Debug for Act<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local(_) => "Local",
            Self::Foreign(_) => "Foreign",
            Self::Wait { .. } => "Wait",
            Self::Pause(_) => "Pause",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::decide::tests::record, *};
    use crate::clock::Timestamp;

    fn saga(id: &str, created_at: i64) -> SagaRecord {
        SagaRecord {
            id: id.to_owned(),
            created_at: Timestamp::from_millis(created_at),
            ..record()
        }
    }

    #[test]
    fn a_provider_key_is_the_same_for_the_same_and_differs_for_whatever_differs() {
        let one = saga("chk_1", 1);
        let key = provider_key(&one, "ship", Way::Do);
        assert_eq!(key.len(), 36);
        assert_eq!(key, provider_key(&one, "ship", Way::Do));
        for other in [
            provider_key(&saga("chk_2", 1), "ship", Way::Do),
            provider_key(&saga("chk_1", 2), "ship", Way::Do),
            provider_key(&one, "capture", Way::Do),
            provider_key(&one, "ship", Way::Undo),
        ] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn a_pause_doubles_up_to_its_ceiling_and_jitter_only_adds() {
        let patience = Patience {
            pause: Duration::from_millis(100),
            pause_max: Duration::from_millis(350),
            ..Patience::default()
        };
        for (attempts, millis) in [(1, 100), (2, 200), (3, 350), (400, 350)] {
            let least = Duration::from_millis(millis);
            assert_eq!(patience.after(attempts, 0.0), least);
            assert!(patience.after(attempts, 0.999) < least.mul_f64(1.5));
        }
    }
}
