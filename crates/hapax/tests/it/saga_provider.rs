//! A remote system for the tests of sagas: it executes a call once for each key, and loses, refuses
//! or delays calls as a test asks it to.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    Clock, Timestamp,
    saga::{Call, Found, Outcome, Refusal, RemoteStep, SagaRecord},
    sink::BoxError,
};
use hapax_testkit::clock::ManualClock;

/// The response of the remote system to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Forward,
    DoAndLose,
    DoAndPanic,
    Lose,
    Refuse,
    Hang,
    Wait,
}

type Script = Box<dyn Fn(u32) -> Reply + Send>;

/// A remote system that executes a call once for each key.
#[derive(Clone, Default)]
pub(crate) struct Far(Arc<Inner>);

#[derive(Default)]
struct Inner {
    effects: Mutex<Vec<String>>,
    done: Mutex<BTreeMap<(String, String), u32>>,
    scripts: Mutex<BTreeMap<String, Script>>,
    attempts: Mutex<BTreeMap<String, u32>>,
    gate: Mutex<Option<Arc<tokio::sync::Notify>>>,
    is_deaf: AtomicU32,
}

impl Far {
    pub(crate) fn desk(&self, name: &'static str) -> Desk {
        Desk {
            far: self.clone(),
            name,
        }
    }

    pub(crate) fn now(&self, name: &str, script: impl Fn(u32) -> Reply + Send + 'static) {
        let mut scripts = self.0.scripts.lock().unwrap();
        scripts.insert(name.to_owned(), Box::new(script));
    }

    /// From now on, keys cannot be looked up.
    pub(crate) fn deaf(&self) {
        self.0.is_deaf.store(1, Ordering::SeqCst);
    }

    pub(crate) fn hears(&self) {
        self.0.is_deaf.store(0, Ordering::SeqCst);
    }

    pub(crate) fn gate(&self, gate: &Arc<tokio::sync::Notify>) {
        *self.0.gate.lock().unwrap() = Some(Arc::clone(gate));
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.0.effects.lock().unwrap().clone()
    }

    pub(crate) fn attempts(&self, name: &str) -> u32 {
        let attempts = self.0.attempts.lock().unwrap();
        attempts.get(name).copied().unwrap_or_default()
    }

    /// The keys under which a call was executed, with the number of calls.
    pub(crate) fn keys(&self, name: &str) -> BTreeMap<String, u32> {
        let done = self.0.done.lock().unwrap();
        let of_name = done.iter().filter(|((step, _), _)| step == name);
        of_name
            .map(|((_, key), times)| (key.clone(), *times))
            .collect()
    }

    fn act(&self, name: &str, key: &str) {
        let mut done = self.0.done.lock().unwrap();
        let times = done.entry((name.to_owned(), key.to_owned())).or_default();
        *times += 1;
        if *times == 1 {
            self.0.effects.lock().unwrap().push(name.to_owned());
        }
    }

    fn has(&self, name: &str, key: &str) -> bool {
        let done = self.0.done.lock().unwrap();
        done.contains_key(&(name.to_owned(), key.to_owned()))
    }

    fn asked(&self, name: &str) -> Reply {
        let mut attempts = self.0.attempts.lock().unwrap();
        let attempt = attempts.entry(name.to_owned()).or_default();
        *attempt += 1;
        let scripts = self.0.scripts.lock().unwrap();
        scripts
            .get(name)
            .map_or(Reply::Forward, |script| script(*attempt))
    }
}

pub(crate) struct Desk {
    far: Far,
    name: &'static str,
}

impl RemoteStep for Desk {
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(format!("{} of {}", self.name, saga.id).into())
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async move {
            let made = || Outcome::Done(format!("{} made", self.name).into());
            let lost = || Outcome::Unknown("the response was lost".into());
            assert_eq!(call.request, format!("{} of {}", self.name, call.saga));
            match self.far.asked(self.name) {
                Reply::Forward => {
                    self.far.act(self.name, &call.key);
                    made()
                }
                Reply::DoAndLose => {
                    self.far.act(self.name, &call.key);
                    lost()
                }
                Reply::DoAndPanic => {
                    self.far.act(self.name, &call.key);
                    panic!("on purpose")
                }
                Reply::Lose => lost(),
                Reply::Refuse => Outcome::Refused(Refusal::new("no", "not today")),
                Reply::Hang => std::future::pending().await,
                Reply::Wait => {
                    let gate = self.far.0.gate.lock().unwrap().clone();
                    gate.unwrap().notified().await;
                    self.far.act(self.name, &call.key);
                    made()
                }
            }
        })
    }

    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        if self.far.0.is_deaf.load(Ordering::SeqCst) > 0 {
            return None;
        }
        Some(Box::pin(async move {
            if self.far.has(self.name, &call.key) {
                Found::Done(format!("{} made", self.name).into())
            } else {
                Found::Absent
            }
        }))
    }
}

/// A desk at which a call arrives late, directly after the look-up that did not find it. The
/// response to the look-up takes some time.
pub(crate) struct Overtaken {
    pub(crate) desk: Desk,
    pub(crate) clock: ManualClock,
    pub(crate) by: Duration,
}

impl RemoteStep for Overtaken {
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        self.desk.request(saga)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        self.desk.call(call)
    }

    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        let asked = self.desk.look_up(call)?;
        Some(Box::pin(async move {
            let found = asked.await;
            if matches!(found, Found::Absent) {
                self.desk.far.act(self.desk.name, &call.key);
                self.clock.advance(self.by);
            }
            found
        }))
    }
}

/// A desk whose request cannot be built before a point in time.
pub(crate) struct Late(pub(crate) Desk, pub(crate) Clock, pub(crate) Timestamp);

impl RemoteStep for Late {
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        if self.1.now() < self.2 {
            return Err("the data of the request does not exist yet".into());
        }
        self.0.request(saga)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        self.0.call(call)
    }

    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        assert!(!call.key.is_empty(), "an empty key must not be looked up");
        self.0.look_up(call)
    }
}

/// A desk whose request panics the first time.
pub(crate) struct Clumsy(pub(crate) Desk, pub(crate) AtomicU32);

impl RemoteStep for Clumsy {
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        assert_ne!(self.1.fetch_add(1, Ordering::SeqCst), 0, "on purpose");
        self.0.request(saga)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        self.0.call(call)
    }
}
