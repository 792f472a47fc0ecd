//! The requests of a consumer of a polling endpoint: a page, a commit, a seek.

use std::{
    cmp::Ordering,
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metrics::{counter, gauge};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

use super::{
    endpoint::{Endpoint, is_endpoint_name},
    error::PollError,
    lookout::look_out,
    page::Page,
    rate::PollRate,
    read::{self, Read},
    store::PollStore,
    token::{TokenHash, is_token},
    wait::Waits,
};
use crate::{
    buckets::Buckets,
    clock::Clock,
    delivery::{Frontier, Start},
    event::EventId,
    keyring::ENCRYPTED_UNDER,
    limits::{
        POLLING_EVENTS, POLLING_EVENTS_MAX, POLLING_LOOKUPS, POLLING_NOTED, POLLING_SEEK_COST,
        POLLING_WAIT, POLLING_WAITING, POLLING_WAITING_EACH,
    },
    notify::Notifier,
    outbox::OutboxEvent,
    store::StoreError,
    telemetry,
};

/// How often a commit or a seek is tried if others move the position at the same time.
const TRIES: u32 = 8;
/// Number of endpoints of which the last note is remembered before old ones are forgotten.
const NOTED_KEPT: usize = 1_024;

/// The limits of a process that serves polling endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollSettings {
    /// How often each endpoint may be polled.
    pub rate: PollRate,
    /// How many polls may wait at the same time. Each holds a connection of the listener.
    pub waiting_max: usize,
    /// How many of them may wait at one endpoint.
    pub waiting_each_max: usize,
}

impl Default for PollSettings {
    fn default() -> Self {
        Self {
            rate: PollRate::default(),
            waiting_max: POLLING_WAITING,
            waiting_each_max: POLLING_WAITING_EACH,
        }
    }
}

/// A request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRequest<'a> {
    /// The cursor after which the page begins; without one it begins at the committed position.
    pub cursor: Option<&'a str>,
    /// Maximum number of events, 1 to 500.
    pub limit: usize,
    /// How long to wait for an event if there is none.
    pub wait: Duration,
}

impl Default for PollRequest<'_> {
    fn default() -> Self {
        Self {
            cursor: None,
            limit: POLLING_EVENTS,
            wait: Duration::ZERO,
        }
    }
}

/// A consumer who has shown a valid token of an endpoint.
#[derive(Clone, Debug)]
pub struct Caller {
    endpoint: Endpoint,
    token: TokenHash,
}

impl Caller {
    /// The endpoint, as it was when the token was checked.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// The polling endpoints of a store. Clones share the limits.
#[derive(Clone)]
pub struct Polling<S>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    notifier: Notifier,
    clock: Clock,
    buckets: Buckets,
    waits: Arc<Waits>,
    lookups: Semaphore,
    /// When each endpoint was last noted as polled.
    noted: Mutex<HashMap<String, Instant>>,
}

impl<S: PollStore> Polling<S> {
    /// Serves the endpoints of `store`. `notifier` is the store's; `clock` is used for the lag.
    pub fn new(store: S, notifier: &Notifier, clock: Clock, settings: &PollSettings) -> Self {
        Self(Arc::new(Inner {
            store,
            notifier: notifier.clone(),
            clock,
            buckets: Buckets::new(settings.rate.per_second, settings.rate.burst),
            waits: Arc::new(Waits::new(settings.waiting_max, settings.waiting_each_max)),
            lookups: Semaphore::new(POLLING_LOOKUPS),
            noted: Mutex::default(),
        }))
    }

    /// Ends all polls that wait, because the process stops.
    pub fn close(&self) {
        self.0.waits.close();
    }

    /// Finds the endpoint that a token opens.
    ///
    /// # Errors
    /// `Unauthorized` if there is no such endpoint or the token is not valid.
    pub async fn authenticate(&self, name: &str, token: &[u8]) -> Result<Caller, PollError> {
        if !is_endpoint_name(name) || !is_token(token) {
            return Err(PollError::Unauthorized);
        }
        let token = TokenHash::of(token);
        let _permit = self.0.lookups.acquire().await;
        let endpoint = self.0.store.find_endpoint(name).await?;
        match endpoint {
            Some(endpoint) if endpoint.opens_with(&token) => Ok(Caller { endpoint, token }),
            _ => Err(PollError::Unauthorized),
        }
    }

    /// Reads one event, for a receiver that was sent its id and a link.
    ///
    /// `position` is that of the link. If it does not have the event, the event is searched for, which
    /// counts as [`POLLING_SEEK_COST`] requests.
    ///
    /// # Errors
    /// `Unauthorized` if no endpoint has the token. `NoEvent` if there is no such event, or if it is not
    /// for the endpoint.
    pub async fn fetch(
        &self,
        token: &[u8],
        id: Option<EventId>,
        position: Option<i64>,
    ) -> Result<Arc<OutboxEvent>, PollError> {
        if !is_token(token) {
            return Err(PollError::Unauthorized);
        }
        let token = TokenHash::of(token);
        let _permit = self.0.lookups.acquire().await;
        let endpoint = self.0.store.find_endpoint_by_token(&token).await?;
        let endpoint = endpoint.filter(|it| it.opens_with(&token));
        let endpoint = endpoint.ok_or(PollError::Unauthorized)?;
        // An event of another tenant costs what one costs that does not exist.
        let mut found = None;
        if position.is_some() {
            found = self.find(&endpoint, 1, id, position).await?;
        }
        if found.is_none() {
            found = self.find(&endpoint, POLLING_SEEK_COST, id, None).await?;
        }
        let found = found.ok_or(PollError::NoEvent)?;
        if found.event.headers.contains_key(ENCRYPTED_UNDER) {
            let problem = "no key of the keyring decrypts the event";
            return Err(StoreError::unavailable(problem).into());
        }
        counter!(telemetry::POLLING_EVENTS, "endpoint" => endpoint.name).increment(1);
        Ok(found)
    }

    /// Reads an event of an endpoint, for a number of requests. A text that is not an id matches no event.
    async fn find(
        &self,
        endpoint: &Endpoint,
        cost: u32,
        id: Option<EventId>,
        position: Option<i64>,
    ) -> Result<Option<Arc<OutboxEvent>>, PollError> {
        self.take(endpoint, cost)?;
        let Some(id) = id else {
            return Ok(None);
        };
        let tenant = endpoint.tenant.as_ref();
        let found = self.0.store.find_event(tenant, id, position).await?;
        Ok(found.filter(|it| endpoint.takes(&it.event)))
    }

    /// Reads a page, and waits for an event if there is none and the request allows it.
    ///
    /// If the page begins at the committed position and is empty, that position may be moved to where
    /// the page ends: nothing between them is for this endpoint.
    ///
    /// # Errors
    /// Fails if the cursor is not one of this endpoint or is gone, and if the endpoint is polled too
    /// often.
    pub async fn poll(&self, caller: &Caller, request: PollRequest<'_>) -> Result<Page, PollError> {
        let endpoint = &caller.endpoint;
        self.take(endpoint, 1)?;
        let given = request.cursor.map(|text| endpoint.secret.read(text));
        let given = given.transpose()?;
        let from = given.as_ref().unwrap_or(&endpoint.committed);
        let limit = request.limit.clamp(1, POLLING_EVENTS_MAX);
        let is_noted = self.note(endpoint).await;
        let mut read = self.read(endpoint, from, limit).await?;
        if read.is_idle() && request.wait > Duration::ZERO {
            let end = Instant::now() + request.wait.min(POLLING_WAIT);
            read = self.wait(caller, read, limit, end).await?;
        }
        if given.is_none() && read.events.is_empty() && (read.has_more || is_noted) {
            self.skip(endpoint, &read.frontier).await;
        }
        self.report(endpoint, &read);
        Ok(Page {
            cursor: cursor(endpoint, &read.frontier)?,
            events: read.events,
            has_more: read.has_more,
        })
    }

    /// Commits a cursor: a later poll without a cursor begins there. Returns the committed cursor.
    ///
    /// # Errors
    /// Fails if the cursor is not one of this endpoint or is gone. `Behind` or `Incomparable` unless
    /// the cursor is ahead of the committed one or `may_go_back` is set.
    pub async fn commit(
        &self,
        caller: &Caller,
        text: &str,
        may_go_back: bool,
    ) -> Result<String, PollError> {
        self.take(&caller.endpoint, 1)?;
        let to = caller.endpoint.secret.read(text)?;
        let mut endpoint = caller.endpoint.clone();
        for _ in 0..TRIES {
            let order = self.0.store.compare_frontiers(&to, &endpoint.committed)?;
            match order {
                Some(Ordering::Equal) => return Ok(text.to_owned()),
                Some(Ordering::Greater) => {}
                Some(Ordering::Less) | None if may_go_back => {}
                Some(Ordering::Less) => {
                    let committed = cursor(&endpoint, &endpoint.committed)?;
                    return Err(PollError::Behind { committed });
                }
                None => {
                    let committed = cursor(&endpoint, &endpoint.committed)?;
                    return Err(PollError::Incomparable { committed });
                }
            }
            match self.0.store.move_committed(&endpoint, &to).await {
                Ok(true) => return Ok(text.to_owned()),
                Ok(false) => endpoint = self.again(caller).await?,
                Err(StoreError::SetBack { .. }) => return Err(self.gone(&endpoint, true).await),
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended())
    }

    /// Moves the committed position to now, to the oldest event, or to a time. Returns the committed
    /// cursor.
    ///
    /// # Errors
    /// Fails if the endpoint is used too often, and if the store fails.
    pub async fn seek(&self, caller: &Caller, to: Start) -> Result<String, PollError> {
        self.take(&caller.endpoint, POLLING_SEEK_COST)?;
        let frontier = self.0.store.start_frontier(to).await?;
        let mut endpoint = caller.endpoint.clone();
        for _ in 0..TRIES {
            if self.0.store.move_committed(&endpoint, &frontier).await? {
                return cursor(&endpoint, &frontier);
            }
            endpoint = self.again(caller).await?;
        }
        Err(contended())
    }

    fn take(&self, endpoint: &Endpoint, count: u32) -> Result<(), PollError> {
        let taken = self.0.buckets.take(&endpoint.name, count);
        taken.map_err(|retry_after| PollError::TooOften { retry_after })
    }

    /// The endpoint as it is now, if the caller may still use it.
    async fn again(&self, caller: &Caller) -> Result<Endpoint, PollError> {
        let found = self.0.store.find_endpoint(&caller.endpoint.name).await?;
        found
            .filter(|now| now.is_same(&caller.endpoint) && now.opens_with(&caller.token))
            .ok_or(PollError::Unauthorized)
    }

    async fn read(
        &self,
        endpoint: &Endpoint,
        from: &Frontier,
        limit: usize,
    ) -> Result<Read, PollError> {
        let store = &self.0.store;
        let read = match read::read(store, endpoint, from, limit).await {
            Ok(read) => read,
            Err(StoreError::SetBack { .. }) => return Err(self.gone(endpoint, true).await),
            Err(error) => return Err(error.into()),
        };
        // After the read: what was purged before it ended may be missing in it.
        match store.is_purged(from).await {
            Ok(false) => Ok(read),
            Ok(true) => Err(self.gone(endpoint, false).await),
            Err(StoreError::SetBack { .. }) => Err(self.gone(endpoint, true).await),
            Err(error) => Err(error.into()),
        }
    }

    /// The error that says where to continue, or why that cannot be said.
    async fn gone(&self, endpoint: &Endpoint, is_set_back: bool) -> PollError {
        let found = self.continue_at(endpoint, is_set_back).await;
        found.unwrap_or_else(|error| error)
    }

    async fn continue_at(
        &self,
        endpoint: &Endpoint,
        is_set_back: bool,
    ) -> Result<PollError, PollError> {
        let store = &self.0.store;
        let from = if is_set_back && !store.is_purged(&endpoint.committed).await? {
            endpoint.committed.clone()
        } else {
            store.start_frontier(Start::Beginning).await?
        };
        let first = read::read(store, endpoint, &from, 1).await?;
        let oldest_at = first.events.first().map(|first| first.event.created_at);
        Ok(PollError::Gone {
            is_set_back,
            cursor: cursor(endpoint, &from)?,
            oldest_at,
        })
    }

    /// Waits until there is an event or `end` has come. The client that goes away drops this.
    async fn wait(
        &self,
        caller: &Caller,
        mut read: Read,
        limit: usize,
        end: Instant,
    ) -> Result<Read, PollError> {
        let endpoint = &caller.endpoint;
        let waits = &self.0.waits;
        if waits.is_closed() {
            return Ok(read);
        }
        let place = waits.enter(&endpoint.name);
        let _place = place.ok_or(PollError::TooManyWaiting)?;
        let mut woken = waits.subscribe();
        loop {
            // Events that were committed before the subscription wake no poll.
            read = self.read(endpoint, &read.frontier, limit).await?;
            if !read.is_idle() {
                // The token may have been replaced, or the endpoint removed, meanwhile.
                self.again(caller).await?;
                return Ok(read);
            }
            self.look_out(&read.frontier);
            tokio::select! {
                _ = woken.changed() => {}
                () = sleep_until(end) => return Ok(read),
            }
            if waits.is_closed() {
                return Ok(read);
            }
        }
    }

    /// Starts a lookout from a frontier that has no events after it, unless one runs.
    fn look_out(&self, frontier: &Frontier) {
        let inner = &self.0;
        if inner.waits.needs_lookout() {
            let commits = inner.notifier.subscribe();
            let (store, waits) = (inner.store.clone(), Arc::clone(&inner.waits));
            tokio::spawn(look_out(store, commits, waits, frontier.clone()));
        }
    }

    /// Records that an endpoint is polled, if that was not recorded lately. Returns whether it was
    /// time for that.
    async fn note(&self, endpoint: &Endpoint) -> bool {
        if !self.is_time_to_note(&endpoint.name) {
            return false;
        }
        if let Err(error) = self.0.store.note_poll(endpoint).await {
            let error = error.error_chain();
            tracing::warn!(endpoint = endpoint.name, error, "a poll cannot be recorded");
        }
        true
    }

    fn is_time_to_note(&self, name: &str) -> bool {
        let now = Instant::now();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < POLLING_NOTED;
        let mut noted = self.0.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(name).is_some_and(is_recent) {
            return false;
        }
        if noted.len() >= NOTED_KEPT {
            noted.retain(|_, at| is_recent(&*at));
        }
        noted.insert(name.to_owned(), now);
        true
    }

    /// Moves the committed position over events that are not for this endpoint, so that a consumer
    /// that commits no empty page does not read them again.
    async fn skip(&self, endpoint: &Endpoint, to: &Frontier) {
        if *to == endpoint.committed {
            return;
        }
        if let Err(error) = self.0.store.move_committed(endpoint, to).await {
            let error = error.error_chain();
            tracing::warn!(
                endpoint = endpoint.name,
                error,
                "a position cannot be moved"
            );
        }
    }

    fn report(&self, endpoint: &Endpoint, read: &Read) {
        let name = endpoint.name.clone();
        let events = u64::try_from(read.events.len()).unwrap_or(u64::MAX);
        counter!(telemetry::POLLING_EVENTS, "endpoint" => name.clone()).increment(events);
        let last = read.events.last().filter(|_| read.has_more);
        let lag = last.map(|last| self.0.clock.now().since(last.event.created_at));
        let lag = lag.unwrap_or_default().as_secs_f64();
        // An empty page among the events of other tenants says nothing about the lag.
        if !read.events.is_empty() || !read.has_more {
            gauge!(telemetry::POLLING_LAG, "endpoint" => name).set(lag);
        }
    }
}

impl<S> fmt::Debug for Polling<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling").finish_non_exhaustive()
    }
}

fn cursor(endpoint: &Endpoint, frontier: &Frontier) -> Result<String, PollError> {
    let text = endpoint.secret.write(frontier);
    text.ok_or(PollError::CursorTooLong)
}

fn contended() -> PollError {
    StoreError::conflict("other consumers of the endpoint move its position at the same time")
        .into()
}
