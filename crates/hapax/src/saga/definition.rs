//! Definition of a saga: its steps and their compensations.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use uuid::Builder;

use super::{Direction, Found, Kind, NewSaga, Outcome, Refusal, SagaRecord, State};
use crate::{
    event::Headers,
    key::{FingerprintBuilder, Tenant},
    limits,
    retry::Delays,
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
    on_end: Option<Arc<dyn OnEnd<Tx>>>,
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
            on_end: None,
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

    /// Lets `on_end` write rows and events in the transaction that ends a saga.
    #[must_use]
    pub fn on_end(self, on_end: impl OnEnd<Tx>) -> Self {
        let on_end: Option<Arc<dyn OnEnd<Tx>>> = Some(Arc::new(on_end));
        Self { on_end, ..self }
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

    pub(crate) fn end_hook(&self) -> Option<&dyn OnEnd<Tx>> {
        self.on_end.as_deref()
    }
}

/// One step.
pub struct Step<Tx> {
    pub(crate) name: &'static str,
    pub(crate) act: StepBody<Tx>,
    pub(crate) undo: Option<StepBody<Tx>>,
    pub(crate) is_pivot: bool,
    pub(crate) compensate_unknown: bool,
    pub(crate) settled_by: Option<&'static str>,
    pub(crate) retry_policy: RetryPolicy,
}

impl<Tx> Step<Tx> {
    /// Creates a step in this database.
    pub fn local(name: &'static str, act: impl LocalStep<Tx>) -> Self {
        Self::of(name, StepBody::Local(Arc::new(act)))
    }

    /// Creates a step in a remote system.
    pub fn remote(name: &'static str, act: impl RemoteStep) -> Self {
        Self::of(name, StepBody::Remote(Arc::new(act)))
    }

    /// Creates a step that waits until the saga receives the signal `signal`. It is refused after
    /// `timeout`.
    pub fn wait(name: &'static str, signal: &'static str, timeout: Duration) -> Self {
        Self::of(name, StepBody::Wait { signal, timeout })
    }

    /// Creates a step that is done after this time.
    pub fn pause(name: &'static str, pause: Duration) -> Self {
        Self::of(name, StepBody::Pause(pause))
    }

    fn of(name: &'static str, act: StepBody<Tx>) -> Self {
        Self {
            name,
            act,
            undo: None,
            is_pivot: false,
            compensate_unknown: false,
            settled_by: None,
            retry_policy: RetryPolicy::default(),
        }
    }

    /// Sets the compensation, in this database.
    #[must_use]
    pub fn compensate_local(mut self, undo: impl LocalStep<Tx>) -> Self {
        self.undo = Some(StepBody::Local(Arc::new(undo)));
        self
    }

    /// Sets the compensation, in the remote system.
    #[must_use]
    pub fn compensate_remote(mut self, undo: impl RemoteStep) -> Self {
        self.undo = Some(StepBody::Remote(Arc::new(undo)));
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
    pub fn compensate_unknown(mut self) -> Self {
        self.compensate_unknown = true;
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
    pub fn retry_policy(mut self, retry_policy: RetryPolicy) -> Self {
        self.retry_policy = retry_policy;
        self
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The action in this direction.
    pub(crate) fn act(&self, direction: Direction) -> Option<&StepBody<Tx>> {
        match direction {
            Direction::Forward => Some(&self.act),
            Direction::Compensate => self.undo.as_ref(),
        }
    }
}

/// The action of a step or of its compensation.
pub enum StepBody<Tx> {
    /// Rows and events in this database.
    Local(Arc<dyn LocalStep<Tx>>),
    /// A call to a remote system.
    Remote(Arc<dyn RemoteStep>),
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
pub struct RetryPolicy {
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
    pub settle_time: Duration,
}

impl Default for RetryPolicy {
    /// Calls of 4 s, repeated after 200 ms, 400 ms and so on up to a minute, for one hour.
    fn default() -> Self {
        Self {
            call: limits::SAGA_CALL,
            pause: limits::SAGA_PAUSE.0,
            pause_max: limits::SAGA_PAUSE.1,
            window: limits::SAGA_WINDOW,
            settle_time: limits::SAGA_SETTLE_TIME,
        }
    }
}

impl RetryPolicy {
    /// The wait after attempt number `attempts` (starting at 1); `unit` is uniform in `0.0..1.0`.
    pub fn after(&self, attempts: u32, unit: f64) -> Duration {
        let pauses = Delays::new((self.pause, self.pause_max));
        let pause = pauses.after(attempts.saturating_sub(1));
        pause + pause.mul_f64(unit / 2.0)
    }

    /// The longest wait between two attempts, or until no call can arrive any more.
    pub(super) fn wait_max(&self) -> Duration {
        self.pause_max.saturating_mul(2).max(self.settle_time)
    }

    /// How long, from the first call, the remote system is assumed to remember a key.
    pub(super) fn memory(&self) -> Duration {
        limits::SAGA_MEMORY.max(self.window.saturating_mul(2))
    }
}

/// A step in this database.
pub trait LocalStep<Tx>: Send + Sync + 'static {
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
pub trait RemoteStep: Send + Sync + 'static {
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
    /// the window of the [`RetryPolicy`] if that is longer. Later the remote system may have deleted
    /// the key.
    ///
    /// Returns `None` if the remote system has no such query.
    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        let _ = call;
        None
    }
}

/// What happens in the transaction that ends a saga.
pub trait OnEnd<Tx>: Send + Sync + 'static {
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
pub fn provider_key(saga: &SagaRecord, step: &str, direction: Direction) -> String {
    let hash = FingerprintBuilder::new(PROVIDER_KEY_VERSION)
        .part(saga.id.as_bytes())
        .part(&saga.created_at.as_millis().to_be_bytes())
        .part(step.as_bytes())
        .part(direction.as_str().as_bytes())
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

impl<Tx> fmt::Debug for StepBody<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local(_) => "Local",
            Self::Remote(_) => "Foreign",
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
        let key = provider_key(&one, "ship", Direction::Forward);
        assert_eq!(key.len(), 36);
        assert_eq!(key, provider_key(&one, "ship", Direction::Forward));
        for other in [
            provider_key(&saga("chk_2", 1), "ship", Direction::Forward),
            provider_key(&saga("chk_1", 2), "ship", Direction::Forward),
            provider_key(&one, "capture", Direction::Forward),
            provider_key(&one, "ship", Direction::Compensate),
        ] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn a_pause_doubles_up_to_its_ceiling_and_jitter_only_adds() {
        let retry_policy = RetryPolicy {
            pause: Duration::from_millis(100),
            pause_max: Duration::from_millis(350),
            ..RetryPolicy::default()
        };
        for (attempts, millis) in [(1, 100), (2, 200), (3, 350), (400, 350)] {
            let least = Duration::from_millis(millis);
            assert_eq!(retry_policy.after(attempts, 0.0), least);
            assert!(retry_policy.after(attempts, 0.999) < least.mul_f64(1.5));
        }
    }
}
