//! Target 14: the gateway, beside nginx and haproxy as plain proxies.
//!
//! All of them are in front of the same service and on the same machine. The service of the target is an ordinary
//! one, which writes a row to PostgreSQL for each request; a service that does nothing shows what each program
//! costs. A first request through the gateway is two commits and a forwarded request; a replay does not reach the
//! service. A missing proxy is an error: a run without the comparison would say less than it seems to.

mod proxy;
mod side;
mod idle;

use std::net::SocketAddr;

use crate::load::Tally;

use super::{
    Bench, Store,
    folder::Folder,
    postgres::{Reference, fastest_pool},
    reference::{self, Recorded},
    report::{Section, Series, Unit, Verdict},
};

pub(super) use idle::idle;
use proxy::{Gateway, Installed, Plain, Proxy};
use side::{Kind, Side};

/// The service of the target.
const INSERT: &str = "postgres-insert";
/// The number of the first run at half load. The runs before have used lower numbers.
const PACED: u64 = 1_000_000;

/// Measures the gateway with its keys in a store.
pub(super) async fn gateway(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let installed = Installed::find()?;
    let folder = Folder::make(&bench.dir, "gateway")?;
    let answer = Recorded::plain(&folder)?;
    let of = (&answer, &folder);
    let pool = fastest_pool(bench, of, INSERT).await?;

    let writes = Reference::start(bench, of, INSERT, pool).await?;
    let place = Folder::make(folder.path(), "insert")?;
    let service = writes.service.address;
    let programs = Programs::before(bench, store, &installed, &place, service).await?;
    let insert = programs.rates(bench, "INSERT").await?;
    let half = insert.first().speed.rate.median() / 2.0;
    let paced = programs.at_pace(bench, half).await?;
    drop((programs, writes));

    let place = Folder::make(folder.path(), "nothing")?;
    let constant = reference::start(&answer, &place, &["constant"]).await?;
    let programs = Programs::before(bench, store, &installed, &place, constant.address).await?;
    let nothing = programs.rates(bench, "no work").await?;

    let [of_insert, of_nothing] = [&insert, &nothing].map(Rates::ratios);
    let [first, replay, ..] = &of_insert;
    let verdicts = vec![
        Verdict::at_least("14", first, 0.6),
        Verdict::at_least("14", replay, 2.0),
        Verdict::below("14", &paced.added, 1.0),
    ];
    let rates = [&insert, &nothing].map(Rates::rates).concat();
    let latencies = [&insert, &nothing].map(Rates::latencies).concat();
    let ratios = of_insert.into_iter().chain(of_nothing);
    Ok(Section {
        title: format!("Target 14: the gateway, {store}"),
        how: how(bench, store, (&answer, pool), &installed, half),
        series: rates
            .into_iter()
            .chain(ratios)
            .chain([paced.added])
            .chain(paced.others)
            .chain(latencies)
            .collect(),
        verdicts,
        ..Section::default()
    })
}

fn how(
    bench: &Bench,
    store: Store,
    (answer, pool): (&Recorded, usize),
    installed: &Installed,
    half: f64,
) -> String {
    format!(
        "`hapax gateway`, which keeps its keys in {store}, is compared with {installed} as plain proxies, in front \
         of two services: `bench serve postgres-insert` writes a row to PostgreSQL with a commit for each request ({pool} connections, \
         the fastest of 8, 16 and 32), and `bench serve constant` does nothing. Both send {} bytes. The targets \
         apply to the first one. {} connections; {} rounds of {:?} after {:?} of warm-up, in alternating order. \
         A replay is one of {} stored responses. The p99 at half load is that of requests that arrive at \
         {half:.0} per second, half of the rate of first requests; the added p99 is the difference to the service \
         itself in the same round.",
        answer.size,
        bench.connections,
        bench.rounds,
        bench.window,
        bench.warm_up,
        side::KEYS,
    )
}

/// The programs in front of a service.
struct Programs {
    service: SocketAddr,
    nginx: Proxy,
    haproxy: Proxy,
    gateway: Gateway,
}

impl Programs {
    async fn before(
        bench: &Bench,
        store: Store,
        installed: &Installed,
        folder: &Folder,
        service: SocketAddr,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            service,
            nginx: installed.start(Plain::Nginx, folder, service).await?,
            haproxy: installed.start(Plain::Haproxy, folder, service).await?,
            gateway: Gateway::start(bench, store, folder, service).await?,
        })
    }

    /// The rates of all programs, which take turns.
    async fn rates(&self, bench: &Bench, work: &str) -> anyhow::Result<Rates> {
        let gateway = self.gateway.address();
        let side = |name: &str, address, kind| Side::new(&format!("{name}, {work}"), address, kind);
        let mut sides = [
            side("direct", self.service, Kind::Plain),
            side("nginx", self.nginx.address(), Kind::Plain),
            side("haproxy", self.haproxy.address(), Kind::Plain),
            side("gateway, first time", gateway, Kind::First),
            side("gateway, replay", gateway, Kind::Replay),
        ];
        side::fill(bench, &sides[4]).await?;
        let mut run = 0;
        for round in 0..bench.rounds {
            for turn in side::order(round, sides.len()) {
                run += 1;
                let tally = sides[turn].run(bench, run, None).await?;
                sides[turn].speed.push(&tally);
            }
            bench.progress(round);
        }
        Ok(Rates {
            work: work.to_owned(),
            sides,
        })
    }

    /// The latency of all programs at the same rate, which take turns.
    async fn at_pace(&self, bench: &Bench, pace: f64) -> anyhow::Result<Paced> {
        let sides = [
            Side::new("direct", self.service, Kind::Plain),
            Side::new("nginx", self.nginx.address(), Kind::Plain),
            Side::new("haproxy", self.haproxy.address(), Kind::Plain),
            Side::new("gateway", self.gateway.address(), Kind::First),
        ];
        let tails = ["direct", "nginx", "haproxy", "gateway, first time"];
        let mut tails = tails.map(|name| millis(format!("{name}: p99 at half load")));
        let added = ["nginx", "haproxy", "gateway"];
        let mut added = added.map(|name| millis(format!("{name}: added p99 at half load")));
        let mut run = PACED;
        for round in 0..bench.rounds {
            let mut figures = [0.0; 4];
            for turn in side::order(round, sides.len()) {
                run += 1;
                let tally = sides[turn].run(bench, run, Some(pace)).await?;
                figures[turn] = tail(&tally);
            }
            for (series, figure) in tails.iter_mut().zip(figures) {
                series.push(figure);
            }
            for (series, figure) in added.iter_mut().zip(&figures[1..]) {
                series.push(figure - figures[0]);
            }
            bench.progress(round);
        }
        let [nginx, haproxy, added] = added;
        let others = [nginx, haproxy].into_iter().chain(tails).collect();
        Ok(Paced { added, others })
    }
}

fn millis(name: String) -> Series {
    Series::new(name, Unit::Millis)
}

/// The p99 in milliseconds.
fn tail(tally: &Tally) -> f64 {
    tally.latency.quantile(990).as_secs_f64() * 1e3
}

/// Latencies at the same rate.
struct Paced {
    /// How much the gateway adds to the p99.
    added: Series,
    others: Vec<Series>,
}

/// The rates in front of a service: direct, nginx, haproxy, first requests, replays.
struct Rates {
    work: String,
    sides: [Side; 5],
}

impl Rates {
    fn first(&self) -> &Side {
        &self.sides[3]
    }

    /// The rates as parts of that of the service itself: first requests, replays, nginx, haproxy.
    fn ratios(&self) -> [Series; 4] {
        let [direct, nginx, haproxy, first, replay] = &self.sides;
        let over = |name: &str, side: &Side| {
            let name = format!("{name} / direct, {}", self.work);
            Series::ratio(name, &side.speed.rate, &direct.speed.rate)
        };
        [
            over("first time", first),
            over("replay", replay),
            over("nginx", nginx),
            over("haproxy", haproxy),
        ]
    }

    fn rates(&self) -> Vec<Series> {
        let rates = self.sides.iter().map(|side| side.speed.rate.clone());
        rates.collect()
    }

    fn latencies(&self) -> Vec<Series> {
        let latencies = self.sides.iter().flat_map(|side| side.speed.latencies());
        latencies.collect()
    }
}
