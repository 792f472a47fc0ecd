//! Definition of a saga: its steps and their compensations.

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

/// Version of the format of provider keys; 1 is that of phased requests.
const PROVIDER_KEY_VERSION: u8 = 2;

/// The steps of one kind of saga.
///
/// `Tx` is the transaction of the store that contains the saga.
pub struct Definition<Tx> {
    kind: Kind,
    steps: Vec<Step<Tx>>,
    deadline: Duration,
    ended: Option<Arc<dyn Ended<Tx>>>,
}

impl<Tx> Definition<Tx> {
    /// Creates a saga with this name and version, without steps.
    ///
    /// If steps are added, removed or changed, use another version: running sagas continue with the
    /// version that they started with, as long as a worker knows it.
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

    /// Adds a step at the end.
    ///
    /// # Panics
    /// Panics if there is a step with this name.
    #[must_use]
    pub fn step(mut self, step: Step<Tx>) -> Self {
        let is_new = self.steps.iter().all(|other| other.name != step.name);
        assert!(is_new, "a saga must not have two steps named {}", step.name);
        self.steps.push(step);
        self
    }

    /// Sets the time limit from the start of the saga. After it, a step with an unknown outcome is
    /// left to an operator.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Lets `ended` write rows and events in the transaction that ends a saga.
    #[must_use]
    pub fn ended(self, ended: impl Ended<Tx>) -> Self {
        let ended: Option<Arc<dyn Ended<Tx>>> = Some(Arc::new(ended));
        Self { ended, ..self }
    }

    /// Creates a saga of this kind, which has to be started in a transaction.
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

    /// The name and the version.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The steps, in order.
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
    /// Creates a step in this database.
    pub fn local(name: &'static str, act: impl Local<Tx>) -> Self {
        Self::of(name, Act::Local(Arc::new(act)))
    }

    /// Creates a step in a remote system.
    pub fn foreign(name: &'static str, act: impl Foreign) -> Self {
        Self::of(name, Act::Foreign(Arc::new(act)))
    }

    /// Creates a step that waits until the saga receives the signal `signal`. It is refused after
    /// `timeout`.
    pub fn wait(name: &'static str, signal: &'static str, timeout: Duration) -> Self {
        Self::of(name, Act::Wait { signal, timeout })
    }

    /// Creates a step that is done after this time.
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

    /// Sets the compensation, in this database.
    #[must_use]
    pub fn undo_local(mut self, undo: impl Local<Tx>) -> Self {
        self.undo = Some(Act::Local(Arc::new(undo)));
        self
    }

    /// Sets the compensation, in the remote system.
    #[must_use]
    pub fn undo_foreign(mut self, undo: impl Foreign) -> Self {
        self.undo = Some(Act::Foreign(Arc::new(undo)));
        self
    }

    /// Makes the step the pivot: after it the saga only goes forward.
    #[must_use]
    pub fn pivot(mut self) -> Self {
        self.is_pivot = true;
        self
    }

    /// Allows the compensation while the outcome of the step is unknown.
    ///
    /// This is safe if the remote system can cancel by key what it has not received yet, and then
    /// refuses the call when it arrives late.
    #[must_use]
    pub fn undo_unknown(mut self) -> Self {
        self.undo_unknown = true;
        self
    }

    /// Allows the signal `signal` to settle the step as done, with the payload as its result.
    #[must_use]
    pub fn settled_by(mut self, signal: &'static str) -> Self {
        self.settled_by = Some(signal);
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The action in this direction.
    pub(crate) fn act(&self, way: Way) -> Option<&Act<Tx>> {
        match way {
            Way::Do => Some(&self.act),
            Way::Undo => self.undo.as_ref(),
        }
    }
}

/// The action of a step or of its compensation.
pub enum Act<Tx> {
    /// Rows and events in this database.
    Local(Arc<dyn Local<Tx>>),
    /// A call to a remote system.
    Foreign(Arc<dyn Foreign>),
    /// Waits for a signal.
    Wait {
        /// The name of the signal.
        signal: &'static str,
        /// The time limit.
        timeout: Duration,
    },
    /// Waits for a period of time.
    Pause(Duration),
}

/// The retry policy of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time limit of one call; less than half a lease.
    pub call: Duration,
    /// Wait after the first attempt. It doubles with each attempt; jitter only makes it longer.
    pub pause: Duration,
    /// Longest wait between two attempts.
    pub pause_max: Duration,
    /// How long, from the first call, a remote system is called again under the same key. After
    /// that the outcome is looked up instead. Providers delete keys, so this must not be longer
    /// than your provider promises to keep them.
    pub window: Duration,
    /// How long after the window a call that was given up may still arrive. Only after this time
    /// does it count that the remote system does not know the key.
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
    /// The wait after attempt number `attempts` (starting at 1); `unit` is uniform in `0.0..1.0`.
    pub fn after(&self, attempts: u32, unit: f64) -> Duration {
        let doublings = attempts.saturating_sub(1).min(20);
        let pause = self.pause.saturating_mul(1 << doublings);
        let pause = pause.min(self.pause_max);
        pause + pause.mul_f64(unit / 2.0)
    }

    /// The longest wait between two attempts, or until no call can arrive any more.
    pub(super) fn wait_max(&self) -> Duration {
        self.pause_max.saturating_mul(2).max(self.quiet)
    }

    /// How long, from the first call, the remote system is assumed to remember a key.
    pub(super) fn memory(&self) -> Duration {
        limits::SAGA_MEMORY.max(self.window.saturating_mul(2))
    }
}

/// A step in this database.
pub trait Local<Tx>: Send + Sync + 'static {
    /// Writes rows and events in `tx`, which is committed together with the row of the step.
    ///
    /// Returns the result for later steps, or the reason for a refusal; in that case nothing of
    /// `tx` is kept. It runs again only if its transaction was lost.
    ///
    /// # Errors
    /// If it fails, the transaction is rolled back, and the step is attempted again.
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>>;
}

/// A step in a remote system.
pub trait Foreign: Send + Sync + 'static {
    /// Builds the request, which is committed before the first call.
    ///
    /// # Errors
    /// If it fails, the step is attempted again.
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError>;

    /// Calls the remote system once, under the key of `call`.
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>>;

    /// Asks the remote system what it knows about the key of `call`. No call is running at that
    /// time.
    ///
    /// The result that nothing has happened is believed for a day from the first call, or for twice
    /// the window of the [`Patience`] if that is longer. Later the remote system may have deleted
    /// the key.
    ///
    /// Returns `None` if the remote system has no such query.
    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        let _ = call;
        None
    }
}

/// What happens in the transaction that ends a saga.
pub trait Ended<Tx>: Send + Sync + 'static {
    /// Writes rows and events about the end.
    ///
    /// # Errors
    /// If it fails, the transaction is rolled back, and it is attempted again until an hour after
    /// the deadline. Then the saga needs attention.
    fn write<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
        state: State,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// One call to a remote system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The id of the saga.
    pub saga: String,
    /// The tenant of the saga.
    pub tenant: Option<Tenant>,
    /// The key of the call, which is the same for every attempt.
    pub key: String,
    /// The request, as it was committed.
    pub request: Bytes,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// Context to pass on: the `traceparent` of the request that started the saga.
    pub headers: Headers,
}

/// The key under which a saga calls a remote system for a step or its compensation.
///
/// It has the form of a UUID (version 8) and is the same for every attempt. Another saga, step or
/// direction has another key, and so does a saga with the same id that was started at another time.
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
