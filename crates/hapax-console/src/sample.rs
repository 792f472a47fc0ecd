//! Figures over time: sampled once for all watchers, kept for a quarter of an hour, and one per
//! minute for a day.
//!
//! For [`FRESH`], one sample serves all pages and all live connections of a tenant, so that any
//! number of watchers costs the database no more than one. The time before the start of this
//! process is not known.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Destination, DestinationFigures, EndpointAttention, Job, JobFilter,
        Overview, Stalled, WaitingEndpoint, destination_of,
    },
    limits::ENDPOINT_STATUS_COUNTED,
};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{Console, Metrics};

/// How long a sample is used.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// The interval of samples that are kept.
pub(crate) const STEP: Duration = Duration::from_secs(5);
/// The number of samples that are kept: a quarter of an hour.
const KEPT: usize = 180;
/// The interval of samples that are kept for a day.
const LONG_STEP: Duration = Duration::from_mins(1);
/// The number of samples that are kept for a day.
const LONG_KEPT: usize = 1_440;
/// How old the numbers in the navigation may be.
const RECENT: Duration = Duration::from_secs(15);
/// How long a page waits for the numbers in its navigation.
const PATIENCE: Duration = Duration::from_millis(500);
/// The number of waiting jobs that are shown.
const JOBS: usize = 10;
/// Number of waiting deliveries below which the backlog of an endpoint is not mentioned.
const BACKLOG_MIN: u64 = 10;
/// The number of samples over which rates are computed: one minute.
const RATE: usize = 12;

/// The current figures and the kept samples.
#[derive(Debug)]
pub(crate) struct LiveFigures {
    pub(crate) at: Timestamp,
    pub(crate) overview: Overview,
    pub(crate) stalled: Vec<Stalled>,
    /// All destinations.
    pub(crate) places: Vec<Destination>,
    /// The disabled endpoints, and the backlogs of the others.
    pub(crate) endpoints: EndpointAttention,
    /// Endpoints whose backlogs have grown in the last minute.
    pub(crate) growing: Vec<WaitingEndpoint>,
    /// Jobs that no relay has begun, the newest first, up to [`JOBS`].
    pub(crate) waiting_jobs: Vec<Job>,
    /// Destinations whose breaker is open in a relay of this process.
    pub(crate) breakers: Vec<String>,
    /// The samples of the last quarter of an hour, oldest first.
    pub(crate) kept: Vec<Sample>,
    /// One sample per minute of the last day, oldest first, without the failures.
    pub(crate) long: Vec<Sample>,
}

impl LiveFigures {
    /// The figures of a destination that a relay has opened.
    pub(crate) fn figures(&self, destination: &str) -> Option<&DestinationFigures> {
        let mut all = self.overview.destinations.iter();
        all.find(|it| it.name == destination)
    }
}

/// A few figures of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: Timestamp,
    pub(crate) lag: f64,
    pub(crate) committed: f64,
    pub(crate) delivered: f64,
    pub(crate) failed: BTreeMap<String, f64>,
    /// Deliveries that wait for endpoints, by endpoint.
    waiting: BTreeMap<String, u64>,
    requests: Option<Requests>,
    /// The fraction of requests that were replayed.
    pub(crate) reuse: Option<f64>,
    /// The fraction of requests that received a 409.
    pub(crate) conflicts: Option<f64>,
}

/// The number of requests with a key since the start of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Requests {
    all: f64,
    replayed: f64,
    conflicts: f64,
}

/// The samples by tenant.
pub(crate) struct Samples {
    metrics: Option<Metrics>,
    turns: Mutex<HashMap<Option<String>, Arc<AsyncMutex<Kept>>>>,
}

#[derive(Default)]
struct Kept {
    look: Option<Arc<LiveFigures>>,
    samples: VecDeque<Sample>,
    long: VecDeque<Sample>,
}

impl Samples {
    pub(crate) fn new(metrics: Option<Metrics>) -> Self {
        let turns = Mutex::default();
        Self { metrics, turns }
    }

    /// A sample that is recent enough.
    pub(crate) async fn look(
        &self,
        console: &Console,
        actor: &Actor,
    ) -> Result<Arc<LiveFigures>, AdminError> {
        let tenant = actor.tenant();
        let turn = self.turn(tenant);
        let mut kept = turn.lock().await;
        let now = console.0.clock.now();
        if let Some(look) = &kept.look
            && now.since(look.at) < FRESH
        {
            return Ok(Arc::clone(look));
        }
        let waiting = JobFilter {
            destination: None,
            state: Some("waiting".to_owned()),
        };
        let ((overview, stalled), places, waiting, endpoints) = tokio::try_join!(
            console.index().overview_and_stalled(actor),
            console.index().list(actor),
            console.store().jobs(actor, &waiting, None, JOBS),
            console.store().endpoint_attention(actor),
        )?;
        // The metrics of this process contain all tenants.
        let text = self.metrics.as_ref().filter(|_| tenant.is_none());
        let text = text.map(|render| render()).unwrap_or_default();
        let requests = requests(&text);
        let growing = kept.growing(&endpoints.backlogs);
        kept.add(Sample::of(now, &overview, &endpoints, requests));
        let look = Arc::new(LiveFigures {
            at: now,
            overview,
            stalled,
            places,
            endpoints,
            growing,
            waiting_jobs: waiting.items,
            breakers: breakers(&text),
            kept: kept.samples.iter().cloned().collect(),
            long: kept.long.iter().cloned().collect(),
        });
        kept.look = Some(Arc::clone(&look));
        Ok(look)
    }

    /// A sample of the last seconds, or a new one; `None` if the store does not answer in time.
    pub(crate) async fn recent(
        &self,
        console: &Console,
        actor: &Actor,
    ) -> Option<Arc<LiveFigures>> {
        let turn = self.turn(actor.tenant());
        let look = turn.try_lock().ok().and_then(|kept| kept.look.clone());
        let now = console.0.clock.now();
        if let Some(look) = look.filter(|look| now.since(look.at) < RECENT) {
            return Some(look);
        }
        let look = timeout(PATIENCE, self.look(console, actor)).await;
        look.ok()?.ok()
    }

    fn turn(&self, tenant: Option<&str>) -> Arc<AsyncMutex<Kept>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // The number of tenants is limited by the number of tokens.
        Arc::clone(turns.entry(tenant.map(str::to_owned)).or_default())
    }
}

/// Samples in the background, so that charts also show the time before a viewer opened the page.
pub(crate) async fn keep(console: &Console) {
    let everybody = Actor::new("");
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = console.0.samples.look(console, &everybody).await {
            tracing::debug!(error = %error, "the console cannot read its figures");
        }
    }
}

impl Kept {
    /// The backlogs that have grown since a sample of about a minute ago, or that are too long to be
    /// counted. Without such a sample, it is not known which have grown.
    fn growing(&self, backlogs: &[WaitingEndpoint]) -> Vec<WaitingEndpoint> {
        let back = self.samples.len().checked_sub(RATE);
        let earlier = back.and_then(|at| self.samples.get(at));
        let has_grown = |it: &&WaitingEndpoint| {
            let before = earlier.map(|then| then.waiting.get(&it.id).copied().unwrap_or(0));
            let is_more = before.is_some_and(|before| it.waiting > before);
            it.waiting >= BACKLOG_MIN && (is_more || it.waiting >= ENDPOINT_STATUS_COUNTED as u64)
        };
        backlogs.iter().filter(has_grown).cloned().collect()
    }

    /// Keeps a sample. It replaces the last one if that is younger than a step.
    fn add(&mut self, mut sample: Sample) {
        let before = self.samples.len().checked_sub(2);
        let before = before.and_then(|at| self.samples.get(at));
        if before.is_some_and(|it| sample.at.since(it.at) < STEP) {
            self.samples.pop_back();
        }
        let back = self.samples.len().saturating_sub(RATE);
        // Counters appear with their first request, so a missing one was zero.
        let earlier = self.samples.get(back);
        let earlier = earlier.map(|it| it.requests.unwrap_or_default());
        if let (Some(now), Some(then)) = (sample.requests, earlier) {
            let all = now.all - then.all;
            let part = |count: f64| (all > 0.0).then(|| count / all);
            sample.reuse = part(now.replayed - then.replayed);
            sample.conflicts = part(now.conflicts - then.conflicts);
        }
        self.add_long(&sample);
        self.samples.push_back(sample);
        while self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }

    /// Keeps one sample per minute, with the highest lag of that minute.
    fn add_long(&mut self, sample: &Sample) {
        match self.long.back_mut() {
            Some(last) if sample.at.since(last.at) < LONG_STEP => {
                last.lag = last.lag.max(sample.lag);
            }
            _ => self.long.push_back(Sample {
                failed: BTreeMap::new(),
                waiting: BTreeMap::new(),
                ..sample.clone()
            }),
        }
        while self.long.len() > LONG_KEPT {
            self.long.pop_front();
        }
    }
}

impl Sample {
    /// The time of the sample.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether this process counts requests.
    pub(crate) fn counts_requests(&self) -> bool {
        self.requests.is_some()
    }

    fn of(
        at: Timestamp,
        overview: &Overview,
        endpoints: &EndpointAttention,
        requests: Option<Requests>,
    ) -> Self {
        let seconds = overview.window.as_secs_f64().max(1.0);
        let rate = |count: u64| float(count) / seconds;
        let lags = overview.destinations.iter().filter_map(|it| it.lag);
        let failed = overview
            .destinations
            .iter()
            .map(|it| (it.name.clone(), float(it.failed.number)));
        let waiting = endpoints.backlogs.iter();
        let waiting = waiting.map(|it| (it.id.clone(), it.waiting));
        Self {
            at,
            lag: lags.max().unwrap_or_default().as_secs_f64(),
            committed: rate(overview.committed.number),
            delivered: rate(overview.delivered.number),
            failed: failed.collect(),
            waiting: waiting.collect(),
            requests,
            reuse: None,
            conflicts: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a chart shows no 53 bits")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// The counted requests of a process, if it counts any.
fn requests(text: &str) -> Option<Requests> {
    let mut found = None;
    for (labels, value) in series(text, "hapax_idempotency_requests_total") {
        let requests: &mut Requests = found.get_or_insert_default();
        requests.all += value;
        match label(labels, "outcome") {
            Some("replayed") => requests.replayed += value,
            Some("mismatch" | "in_progress") => requests.conflicts += value,
            _ => {}
        }
    }
    found
}

fn breakers(text: &str) -> Vec<String> {
    let open = series(text, "hapax_relay_breaker_open").filter(|(_, value)| *value > 0.0);
    let names = open.filter_map(|(labels, _)| label(labels, "destination"));
    let mut names: Vec<String> = names.map(|it| destination_of(it).to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The labels and values of a metric in Prometheus text.
fn series<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.strip_prefix('{')?.rsplit_once('}')?;
        Some((labels, value.trim().parse().ok()?))
    })
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("{name}=\"");
    let at = labels.find(&begin)? + begin.len();
    labels[at..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE hapax_idempotency_requests_total counter\n\
        hapax_idempotency_requests_total{operation=\"POST /a\",outcome=\"created\"} 6\n\
        hapax_idempotency_requests_total{operation=\"POST /a\",outcome=\"replayed\"} 3\n\
        hapax_idempotency_requests_total{operation=\"POST /a\",outcome=\"mismatch\"} 1\n\
        hapax_relay_breaker_open{destination=\"mail\"} 0\n\
        hapax_relay_breaker_open{destination=\"hooks/1\"} 1\n";

    #[test]
    fn what_a_process_counts_is_read() {
        let counted = Requests {
            all: 10.0,
            replayed: 3.0,
            conflicts: 1.0,
        };
        assert_eq!(requests(TEXT), Some(counted));
        assert_eq!(breakers(TEXT), ["hooks"]);
        assert_eq!(requests("other 1\n"), None);
    }

    /// A sample after this number of requests, some of which were replayed.
    fn sample(at: i64, all: f64, replayed: f64) -> Sample {
        Sample {
            at: Timestamp::from_millis(at),
            lag: 0.0,
            committed: 0.0,
            delivered: 0.0,
            failed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            requests: Some(Requests {
                all,
                replayed,
                conflicts: 0.0,
            }),
            reuse: None,
            conflicts: None,
        }
    }

    #[test]
    fn a_backlog_that_is_longer_than_a_minute_ago_grows() {
        let of = |id: &str, waiting| WaitingEndpoint {
            id: id.to_owned(),
            tenant: "acme".to_owned(),
            waiting,
        };
        let now = [
            of("more", 40),
            of("same", 30),
            of("few", 9),
            of("full", ENDPOINT_STATUS_COUNTED as u64),
        ];
        let mut kept = Kept::default();
        let grown = |kept: &Kept| {
            let grown = kept.growing(&now).into_iter();
            grown.map(|it| it.id).collect::<Vec<_>>()
        };
        for at in 0..12 {
            assert_eq!(grown(&kept), ["full"], "{at}");
            let waiting = [("more", 39), ("same", 30)];
            let waiting = waiting.map(|(id, number)| (id.to_owned(), number));
            kept.add(Sample {
                waiting: waiting.into(),
                ..sample(at * 5_000, 0.0, 0.0)
            });
        }
        assert_eq!(grown(&kept), ["more", "full"]);
    }

    #[test]
    fn the_first_requests_of_a_process_have_a_rate() {
        let mut kept = Kept::default();
        kept.add(Sample {
            requests: None,
            ..sample(0, 0.0, 0.0)
        });
        kept.add(sample(5_000, 4.0, 1.0));
        assert_eq!(kept.samples[1].reuse, Some(0.25));
    }

    #[test]
    fn a_rate_is_taken_over_what_was_counted_since() {
        let mut kept = Kept::default();
        kept.add(sample(0, 100.0, 50.0));
        kept.add(sample(5_000, 110.0, 59.0));
        assert_eq!(kept.samples[0].reuse, None);
        assert_eq!(kept.samples[1].reuse, Some(0.9));
        for at in 2..400 {
            kept.add(sample(at * 5_000, 110.0, 59.0));
        }
        assert_eq!(kept.samples.len(), KEPT);
        // 400 samples of five seconds are a bit more than 33 minutes.
        assert_eq!(kept.long.len(), 34);
        for minute in 34..2_000 {
            kept.add(sample(minute * 60_000, 110.0, 59.0));
        }
        assert_eq!(kept.long.len(), LONG_KEPT);
        assert_eq!(kept.samples[KEPT - 1].reuse, None);
    }
}
