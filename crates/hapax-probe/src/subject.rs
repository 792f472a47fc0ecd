//! What a check works with: an operation of the server under test, and the means to send requests.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    effects::{Listener, count},
    http::{Connector, Cut, Failure, Field, Request, Response, Target, curl},
    plan::{Numbers, Operation, Payload, Plan, Template},
    profile::{KeyForm, Profile},
    shell::succeeds,
    verdict::Stop,
};

/// The header that holds the key.
pub(crate) const KEY: &str = "Idempotency-Key";

/// How long a check waits for a request to leave the state "in flight".
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the probe waits for a server that was restarted.
const RESTART_MAX: Duration = Duration::from_secs(30);
/// The number of requests whose `curl` commands a finding shows.
const SHOWN: usize = 2;

/// Header fields that belong to one connection or one response.
const PER_REQUEST: [&str; 14] = [
    "age",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "request-id",
    "server",
    "server-timing",
    "set-cookie",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "x-correlation-id",
    "x-request-id",
];

/// The state of a run that its checks share.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connector: Connector,
    pub(crate) numbers: RefCell<Numbers>,
    pub(crate) sent: Cell<u64>,
    /// The number of requests that the server reacted to: with a response, or with a part of one.
    pub(crate) answered: Cell<u64>,
    /// The number of requests without any reaction of the server.
    pub(crate) unanswered: Cell<u64>,
    /// When the next request may be sent, by the rate of the plan.
    next: Cell<Instant>,
    /// The time of the first key, for keys that contain a time.
    unix_ms: Cell<u64>,
}

impl Session {
    pub(crate) fn new(connector: Connector, seed: u64, unix_ms: u64) -> Self {
        Self {
            connector,
            numbers: RefCell::new(Numbers::new(seed)),
            sent: Cell::new(0),
            answered: Cell::new(0),
            unanswered: Cell::new(0),
            next: Cell::new(Instant::now()),
            unix_ms: Cell::new(unix_ms),
        }
    }

    /// Counts a result by whether the server is there. One that the probe cut does not say it.
    fn note(&self, result: &Result<Response, Failure>) {
        let count = match result {
            Ok(_) | Err(Failure::Ended(_) | Failure::Malformed(_) | Failure::CutTooLate) => {
                &self.answered
            }
            Err(Failure::Connect(_) | Failure::Timeout(_)) => &self.unanswered,
            Err(Failure::Cut | Failure::Forbidden(_)) => return,
        };
        count.set(count.get() + 1);
    }
}

/// What is known of an operation. The module `calibration` finds it out.
#[derive(Debug, Default)]
pub(crate) struct OperationFacts {
    /// How late the count follows a response, or why effects cannot be counted.
    pub(crate) lag: RefCell<Option<Result<Duration, String>>>,
    /// Whether two executions have different bodies.
    pub(crate) recognizable: Cell<Option<bool>>,
    /// Whether the varied payload is accepted, or the response that refuses it.
    pub(crate) varied: RefCell<Option<Result<(), String>>>,
    /// How many requests were sent.
    pub(crate) requests: Cell<u64>,
    /// When the last of them ended.
    pub(crate) ended_at: Cell<Option<Instant>>,
    /// The last count, and how many requests had been sent by then.
    pub(crate) counted: Cell<Option<(u64, u64)>>,
}

impl OperationFacts {
    /// Records that a request begins.
    fn begins(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Records that a request has ended.
    fn ended(&self) {
        self.ended_at.set(Some(Instant::now()));
    }

    /// Returns how late the count follows a response.
    pub(crate) fn lag(&self) -> Duration {
        match *self.lag.borrow() {
            Some(Ok(lag)) => lag,
            _ => Duration::ZERO,
        }
    }
}

/// One operation under test.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) operation: &'a Operation,
    session: &'a Session,
    listener: Option<&'a Listener>,
    /// What was found out about the operation.
    pub(crate) known: OperationFacts,
    /// The requests that the current check has sent.
    recorded: RefCell<Vec<Request>>,
    /// The keys that the current check has made. Reports contain numbers in their place, so that two
    /// runs have the same report.
    keys: RefCell<Vec<String>>,
    /// Where a dry run reports its requests.
    on_dry: &'a dyn DryRun,
}

/// Receives the requests of a dry run.
pub(crate) trait DryRun: std::fmt::Debug {
    fn request(&self, command: String);
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        operation: &'a Operation,
        session: &'a Session,
        listener: Option<&'a Listener>,
        on_dry: &'a dyn DryRun,
    ) -> Self {
        Self {
            plan,
            operation,
            session,
            listener,
            known: OperationFacts::default(),
            recorded: RefCell::default(),
            keys: RefCell::default(),
            on_dry,
        }
    }

    pub(crate) fn profile(&self) -> &'static Profile {
        self.plan.profile
    }

    /// Returns a key that was not used before, in the form of the profile.
    pub(crate) fn key(&self) -> String {
        let mut numbers = self.session.numbers.borrow_mut();
        // The time makes the keys of two runs with the same seed different.
        let unix_ms = self.session.unix_ms.get() + 1;
        self.session.unix_ms.set(unix_ms);
        let key = match self.profile().key {
            KeyForm::Text | KeyForm::Quoted => format!("probe-{}-{unix_ms}", numbers.uuid()),
            KeyForm::Uuid | KeyForm::UuidV7 => numbers.uuid_v7(unix_ms),
        };
        self.keys.borrow_mut().push(key.clone());
        key
    }

    /// Returns a new payload.
    pub(crate) fn payload(&self) -> Payload {
        self.filled(&self.operation.body)
    }

    /// Returns a payload from another template.
    pub(crate) fn filled(&self, template: &Template) -> Payload {
        Payload {
            target: self.operation.target.clone(),
            content_type: self.operation.content_type.clone(),
            body: template.fill(&mut self.session.numbers.borrow_mut()),
        }
    }

    /// Returns another payload, with another effect, or `None` if the plan does not vary the payload.
    pub(crate) fn varied(&self, payload: &Payload) -> Option<Payload> {
        self.operation.vary.as_ref()?.apply(payload).ok()
    }

    /// Returns a request without a key.
    pub(crate) fn without_key(&self, payload: &Payload) -> Request {
        let mut request = Request::new(&self.operation.method, &payload.target);
        for (name, value) in &self.operation.headers {
            request = request.header(name, value.as_bytes());
        }
        if !payload.body.is_empty() && !payload.content_type.is_empty() {
            request = request.header("Content-Type", payload.content_type.as_bytes());
        }
        request.body(payload.body.clone())
    }

    /// Returns a request under a key.
    pub(crate) fn request(&self, key: &str, payload: &Payload) -> Request {
        let value = match self.profile().key {
            KeyForm::Quoted => format!("\"{key}\""),
            KeyForm::Text | KeyForm::Uuid | KeyForm::UuidV7 => key.to_owned(),
        };
        self.without_key(payload).header(KEY, value)
    }

    /// Sends a request and returns the response.
    pub(crate) async fn send(&self, request: &Request) -> Result<Response, Stop> {
        match self.exchange(request, None).await? {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(Stop::NoResponse {
                request: request.describe(),
                failure,
            }),
        }
    }

    /// Sends a request. The connection is cut where `cut` says. That there is no response is a
    /// result here, and not an error.
    pub(crate) async fn exchange(
        &self,
        request: &Request,
        cut: Option<Cut>,
    ) -> Result<Result<Response, Failure>, Stop> {
        self.exchange_within(request, cut, self.plan.wait).await
    }

    /// As [`Self::exchange`], with another time limit.
    pub(crate) async fn exchange_within(
        &self,
        request: &Request,
        cut: Option<Cut>,
        wait: Duration,
    ) -> Result<Result<Response, Failure>, Stop> {
        self.admit(1).await?;
        Ok(self.transfer(request, cut, wait).await)
    }

    /// Sends a request that [`Self::admit`] has admitted.
    pub(crate) async fn transfer(
        &self,
        request: &Request,
        cut: Option<Cut>,
        wait: Duration,
    ) -> Result<Response, Failure> {
        self.record(request);
        if self.plan.dry_run {
            self.on_dry
                .request(curl(request, &self.plan.secret_headers));
            return Ok(dry_answer());
        }
        self.known.begins();
        let result = self.session.connector.exchange(request, cut, wait).await;
        self.session.note(&result);
        self.known.ended();
        let answer = match self.profile().replay_member {
            Some(member) => result?.without_member(member),
            None => result?,
        };
        let members = self.plan.per_request_members.iter();
        Ok(members.fold(answer, |answer, member| answer.without_value(member)))
    }

    fn record(&self, request: &Request) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.len() < SHOWN {
            recorded.push(request.clone());
        }
    }

    /// Does something without recording its requests and keys for the report.
    pub(crate) async fn unrecorded<T>(&self, work: impl Future<Output = T>) -> T {
        let requests = self.recorded.borrow().len();
        let keys = self.keys.borrow().len();
        let result = work.await;
        self.recorded.borrow_mut().truncate(requests);
        self.keys.borrow_mut().truncate(keys);
        result
    }

    /// Sends requests at the same time. Requests without a response are errors in the list.
    ///
    /// They are admitted together: requests that a low rate has spaced out would be no race.
    pub(crate) async fn race(
        &self,
        requests: &[Request],
    ) -> Result<Vec<Result<Response, Failure>>, Stop> {
        self.admit(requests.len() as u64).await?;
        let all = requests
            .iter()
            .map(|request| self.transfer(request, None, self.plan.wait));
        Ok(futures_util::future::join_all(all).await)
    }

    /// Sends a request, again and again while it is in flight or the server is not available, and
    /// returns the first other response.
    pub(crate) async fn settled(&self, request: &Request) -> Result<Response, Stop> {
        let end = Instant::now() + PATIENCE;
        loop {
            let last = self.exchange(request, None).await?;
            let goes_on = match &last {
                Ok(answer) => self.is_temporary(answer),
                Err(failure) => !matches!(failure, Failure::Forbidden(_)),
            };
            if !goes_on || Instant::now() > end {
                return last
                    .map_err(|failure| Stop::NoResponse {
                        request: request.describe(),
                        failure,
                    })
                    .and_then(|answer| self.unlimited(answer));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether a response only says that the request is to be sent again later.
    pub(crate) fn is_temporary(&self, answer: &Response) -> bool {
        self.profile().is_in_flight(answer) || matches!(answer.status, 429 | 502..=504)
    }

    /// Returns the response, unless it says that there are too many requests, which says nothing else.
    pub(crate) fn unlimited(&self, answer: Response) -> Result<Response, Stop> {
        if answer.status == 429 && !self.profile().is_in_flight(&answer) {
            Err(Stop::RateLimited(answer.describe()))
        } else {
            Ok(answer)
        }
    }

    /// Sends a first request under a new key, which has to succeed.
    pub(crate) async fn accepted(&self) -> Result<First, Stop> {
        self.accepted_as(&self.payload()).await
    }

    /// As [`Self::accepted`], with this payload.
    pub(crate) async fn accepted_as(&self, payload: &Payload) -> Result<First, Stop> {
        let request = self.request(&self.key(), payload);
        let answer = self.send(&request).await?;
        if answer.is_success() {
            Ok(First {
                request,
                payload: payload.clone(),
                answer,
            })
        } else {
            Err(Stop::NotAccepted(answer.describe()))
        }
    }

    /// Reads the count of effects once.
    pub(crate) async fn count(&self) -> Result<u64, Stop> {
        let Some(oracle) = &self.operation.oracle else {
            return Err(Stop::Effects("the plan has no count".to_owned()));
        };
        if self.plan.dry_run {
            return Ok(0);
        }
        let admit = async || self.admit(1).await;
        count(oracle, self.listener, &self.session.connector, admit).await
    }

    /// Runs the restart command and waits until the server accepts connections again.
    pub(crate) async fn restart(&self, command: &str) -> Result<(), Stop> {
        if self.plan.dry_run {
            // The command can contain a secret.
            self.on_dry.request("# the restart command".to_owned());
            return Ok(());
        }
        succeeds(command, RESTART_MAX)
            .await
            .map_err(|error| Stop::Restart(format!("the restart command {error}")))?;
        self.reachable(&self.operation.target).await?;
        match &self.operation.second {
            Some(second) => self.reachable(second).await,
            None => Ok(()),
        }
    }

    async fn reachable(&self, target: &Target) -> Result<(), Stop> {
        let end = Instant::now() + RESTART_MAX;
        let request = Request::new("GET", target);
        loop {
            self.admit(1).await?;
            let left = end.saturating_duration_since(Instant::now());
            let answer = self
                .session
                .connector
                .exchange(&request, None, self.plan.wait.min(left))
                .await;
            match answer {
                Ok(_) => return Ok(()),
                Err(failure) if Instant::now() >= end => {
                    return Err(Stop::Restart(failure.to_string()));
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Returns the header fields of a response that its replay must have too, in their order, with
    /// names in lower case.
    pub(crate) fn lasting(&self, answer: &Response) -> Vec<Field> {
        let passes = |name: &str| {
            !PER_REQUEST.contains(&name)
                && !self.profile().markers.contains(&name)
                && !name.starts_with("ratelimit")
                && !name.starts_with("x-ratelimit")
                && !self
                    .plan
                    .per_request_headers
                    .iter()
                    .any(|it| it.eq_ignore_ascii_case(name))
        };
        answer
            .fields
            .iter()
            .map(|field| Field {
                name: field.name.to_ascii_lowercase(),
                value: field.value.clone(),
            })
            .filter(|field| passes(&field.name))
            .collect()
    }

    /// Returns the first requests of the current check as commands, and forgets them.
    pub(crate) fn take_commands(&self) -> Vec<String> {
        let keys = self.keys.take();
        let numbered = |command: String| {
            keys.iter().enumerate().fold(command, |command, (n, key)| {
                command.replace(key, &format!("KEY-{}", n + 1))
            })
        };
        self.recorded
            .take()
            .iter()
            .map(|it| numbered(curl(it, &self.plan.secret_headers)))
            .collect()
    }

    /// Waits for the rate of the plan, and counts requests that are sent together.
    pub(crate) async fn admit(&self, requests: u64) -> Result<(), Stop> {
        let sent = self.session.sent.get() + requests;
        if sent > self.plan.requests_max {
            return Err(Stop::RequestsMax(self.plan.requests_max));
        }
        self.session.sent.set(sent);
        if self.plan.dry_run {
            return Ok(());
        }
        let at = self.session.next.get().max(Instant::now());
        self.session
            .next
            .set(at + Duration::from_secs(requests) / self.plan.rate.get());
        sleep_until(at).await;
        Ok(())
    }
}

/// A first request that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub(crate) request: Request,
    pub(crate) payload: Payload,
    pub(crate) answer: Response,
}

impl First {
    /// Returns the key of the request, without quotes.
    pub(crate) fn key(&self) -> String {
        self.request
            .headers
            .iter()
            .find(|(name, _)| name == KEY)
            .map(|(_, value)| String::from_utf8_lossy(value).trim_matches('"').to_owned())
            .unwrap_or_default()
    }
}

/// Sorts fields by name. Fields of the same name keep their order, which has a meaning.
pub(crate) fn sorted(mut fields: Vec<Field>) -> Vec<Field> {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    fields
}

/// The response that a dry run assumes.
fn dry_answer() -> Response {
    Response {
        status: 201,
        fields: Vec::new(),
        body: Vec::new(),
        elapsed: Duration::ZERO,
    }
}
