//! Response times of the pages of the web console, with a large database.
//!
//! This process serves the console, on PostgreSQL. Each page is requested over loopback, one
//! request after the other, and timed from the first byte of the request to the last byte of the
//! response.

mod plant;
mod pages;
mod served;
mod table;

use anyhow::Context as _;

use super::{
    Bench,
    postgres::connect,
    report::{Section, Series, Unit, Verdict},
    say,
};
use crate::histogram::Histogram;
use pages::{Kind, Page};
use plant::Planted;
use served::Served;

/// Target for the response time of a page, in milliseconds.
const BOUND: f64 = 100.0;

/// The size of the database, and the number of requests.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Number of events. All other rows are in proportion.
    events: i64,
    /// Number of timed requests for each page.
    requests: usize,
}

/// The result of a page.
struct Timed {
    page: Page,
    bytes: usize,
    times: Histogram,
}

impl Sizes {
    /// The sizes for the flags of the harness.
    pub(super) fn new(quick: bool, rounds: usize, events: Option<u64>) -> anyhow::Result<Self> {
        let events = events.unwrap_or(if quick { 300_000 } else { 10_000_000 });
        Ok(Self {
            events: i64::try_from(events).context("--events is too large")?,
            requests: rounds * 20,
        })
    }
}

impl Timed {
    fn millis(&self, thousandths: u64) -> f64 {
        self.times.quantile(thousandths).as_secs_f64() * 1e3
    }

    fn p99(&self) -> f64 {
        self.millis(990)
    }
}

/// Inserts the rows, serves the console and requests every page.
pub(super) async fn console(bench: &Bench) -> anyhow::Result<Section> {
    let sizes = &bench.console;
    let database = bench.server().await?.database().await?;
    let url = database.url();
    let served = Served::start(&url).await?;
    let client = connect(&url).await?;
    let planted = Planted::of(sizes.events);
    planted.until_lately(&client).await?;
    // The work of autovacuum and the checkpointer is done now, so that it disturbs no measurement.
    client.batch_execute("VACUUM ANALYZE").await?;
    client.batch_execute("CHECKPOINT").await?;
    planted.lately(&client).await?;
    say("  the rows are inserted\n");
    let mut timed = Vec::new();
    for page in pages::every(&client, &planted).await? {
        if let Some(one) = served.time(page, sizes.requests).await? {
            say(&format!("  {}\n", table::row(&one)));
            timed.push(one);
        }
    }
    Ok(section(&planted, sizes.requests, &timed))
}

fn section(planted: &Planted, requests: usize, timed: &[Timed]) -> Section {
    let slowest = |kind: Kind, name: &str| {
        let mut series = Series::new(name, Unit::Millis);
        let own = timed.iter().filter(|it| it.page.kind == kind);
        series.push(own.map(Timed::p99).fold(f64::NAN, f64::max));
        Verdict::below("pages", &series, BOUND)
    };
    let verdicts = vec![
        slowest(
            Kind::Overview,
            "p99 of the overview and of pages with its figures",
        ),
        slowest(Kind::List, "p99 of the slowest list, with any filter"),
        slowest(Kind::One, "p99 of the slowest page of one item"),
    ];
    Section {
        title: "Pages: response times".to_owned(),
        how: format!(
            "{planted} A page is timed from the request to its last byte, over loopback, by one \
             client on one connection: {requests} requests after {} of warm-up, or as many as fit \
             into {:?}. The console reads the figures of the overview at most once every two \
             seconds; the times include that query, except in the line that says otherwise.",
            served::WARM_UP,
            served::PATIENCE,
        ),
        table: table::of(timed),
        verdicts,
        ..Section::default()
    }
}

/// The measurements of the console.
pub(super) fn every(bench: &Bench) -> Vec<(&'static str, super::Measurement<'_>)> {
    vec![("console", Box::pin(console(bench)))]
}
