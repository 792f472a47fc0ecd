//! What the pages of the web console take, on the database of a service that is not small.
//!
//! A console is served by this process, on PostgreSQL; each page is asked for over the loopback
//! interface, one request after the other, and timed from its first byte out to its last byte in.

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

/// What a page may take, in milliseconds.
const BOUND: f64 = 100.0;

/// How much there is to look at, and how often that is done.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Events; all else is there in proportion.
    events: i64,
    /// Requests of each page that are timed.
    requests: usize,
}

/// What came of a page.
struct Timed {
    page: Page,
    bytes: usize,
    times: Histogram,
}

impl Sizes {
    /// As the harness was told.
    pub(super) fn new(quick: bool, rounds: usize, events: Option<u64>) -> anyhow::Result<Self> {
        let events = events.unwrap_or(if quick { 300_000 } else { 10_000_000 });
        Ok(Self {
            events: i64::try_from(events).context("so many events have no numbers")?,
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

/// Plants the rows, serves the console, asks for every page.
pub(super) async fn console(bench: &Bench) -> anyhow::Result<Section> {
    let sizes = &bench.console;
    let database = bench.server().await?.database().await?;
    let url = database.url();
    let served = Served::start(&url).await?;
    let client = connect(&url).await?;
    let planted = Planted::of(sizes.events);
    planted.until_lately(&client).await?;
    // What autovacuum and the checkpointer would do by and by.
    client.batch_execute("VACUUM ANALYZE").await?;
    client.batch_execute("CHECKPOINT").await?;
    planted.lately(&client).await?;
    say("  the rows are planted\n");
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
            "p99 of the overview, and of what shows its figures",
        ),
        slowest(
            Kind::List,
            "p99 of a list, the slowest of all with their filters",
        ),
        slowest(Kind::One, "p99 of a page of one thing, the slowest"),
    ];
    Section {
        title: "Pages: what each takes the server".to_owned(),
        how: format!(
            "{planted} A page is timed from the request to its last byte, over loopback, by one client \
             on one connection: {requests} requests after {} that are not counted, or as many as \
             fit into {:?}. The figures of the overview are looked at once every two seconds for \
             everybody: what is timed is that look, but in the line that says otherwise.",
            served::WARM_UP,
            served::PATIENCE,
        ),
        table: table::of(timed),
        verdicts,
        ..Section::default()
    }
}

/// What the console is measured by.
pub(super) fn every(bench: &Bench) -> Vec<(&'static str, super::Measurement<'_>)> {
    vec![("console", Box::pin(console(bench)))]
}
