//! First writes and replays by the number of stored keys.
//!
//! Real requests store the keys. Replays are spread over all of them and read the store, because
//! the cache would hide the cost. The measured first writes add a tenth to the number of keys at
//! most.

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::ensure;

use crate::{
    load::{self, Keys, Until},
    transact::to_f64,
};

use super::{
    super::{
        Bench, Store,
        capacity::first_writes,
        folder::Folder,
        plot::{Axis, Line, Plot, Scale},
        relay::many,
        report::{Series, Unit},
        shop::Shop,
        speed::Speed,
    },
    Figures, plan,
};

/// The setting that turns the replay cache off.
const NO_CACHE: &[(&str, &str)] = &[("HAPAX__IDEMPOTENCY__CACHE_BYTES", "0")];
/// Seed of the stored keys. Those of the measured first writes are larger.
const STORED: u64 = 1;

/// The figures with this number of stored keys.
struct Size {
    keys: u64,
    writes: Speed,
    replays: Speed,
}

/// A line through rates by the logarithm of the number of keys, which minimizes the squared
/// distances.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// The change of the rate for ten times the keys.
    slope: f64,
    /// The means of the logarithm and of the rate.
    mean: (f64, f64),
}

/// Stores keys in one shop and measures at several numbers of them.
pub(super) async fn keys(bench: &Bench, store: Store) -> anyhow::Result<Figures> {
    let sizes = stored(bench, store).await?;
    let writes = Fit::of(sizes.iter().map(|size| (size.keys, &size.writes.rate)));
    let replays = Fit::of(sizes.iter().map(|size| (size.keys, &size.replays.rate)));
    let least = sizes.first().map_or(0, |size| size.keys);
    let changes = [("first writes", writes), ("replays", replays)];
    let changes = changes.into_iter().filter_map(|(name, fit)| {
        let name = format!("{name}, change for ten times the keys");
        Some(fit?.change(name, least))
    });
    let speeds = sizes.iter().flat_map(|size| [&size.writes, &size.replays]);
    let rates = speeds.clone().map(|speed| speed.rate.clone());
    let latencies = speeds.flat_map(Speed::latencies);
    Ok(Figures {
        how: format!(
            "`POST /orders` over {} connections stores {} keys in one shop, whose replay cache is \
             off. With a tenth, three tenths and all of them stored, {} rounds: {:?} of replays, \
             spread over all stored keys, and first writes, which add at most a tenth to the keys \
             in all rounds together. The changes are those of a line through the rates by the \
             logarithm of the number of keys, relative to its first value.",
            bench.connections,
            many(bench.keys),
            bench.rounds,
            bench.window
        ),
        series: rates.chain(changes).chain(latencies).collect(),
        plot: plot(store, &sizes, writes, replays),
    })
}

/// Stores the keys in one shop, and measures with a tenth, three tenths and all of them.
async fn stored(bench: &Bench, store: Store) -> anyhow::Result<Vec<Size>> {
    let folder = Folder::make(&bench.dir, "growth")?;
    let shop = Shop::bare(bench, store, folder, NO_CACHE).await?;
    let counts = [bench.keys / 10, bench.keys / 10 * 3, bench.keys];
    let (mut before, mut seed) = (0, STORED);
    let mut sizes = Vec::new();
    // Few keys may leave fewer sizes.
    for keys in BTreeSet::from(counts.map(|count| count.max(1))) {
        fill(bench, shop.address(), before, keys).await?;
        super::super::say(&format!("  {} keys are stored\n", many(keys)));
        before = keys;
        let mut size = Size::new(keys);
        for round in 0..bench.rounds {
            seed += 1;
            size.measure(bench, shop.address(), seed).await?;
            bench.progress(round);
        }
        sizes.push(size);
    }
    Ok(sizes)
}

/// Stores the first `keys` keys, of which the first `before` are stored already.
async fn fill(bench: &Bench, address: SocketAddr, before: u64, keys: u64) -> anyhow::Result<()> {
    let plan = plan(bench, address, STORED, Until::Count(keys));
    let tally = load::run(&plan).await?;
    tally.only(201)?;
    ensure!(
        tally.replayed == before,
        "expected {before} replays of stored keys, got {}",
        tally.replayed
    );
    Ok(())
}

impl Size {
    fn new(keys: u64) -> Self {
        let speed = |name: &str| Speed::new(&format!("{name}, {} keys stored", many(keys)));
        Self {
            keys,
            writes: speed("first writes"),
            replays: speed("replays"),
        }
    }

    async fn measure(
        &mut self,
        bench: &Bench,
        address: SocketAddr,
        seed: u64,
    ) -> anyhow::Result<()> {
        let mut replays = plan(bench, address, STORED, bench.window());
        replays.keys = Keys::Spread(self.keys);
        let tally = load::run(&replays).await?;
        tally.only(201)?;
        ensure!(
            tally.replayed == tally.count(),
            "a response was not a replay: {tally}"
        );
        self.replays.push(&tally);
        // Every connection has at least one request.
        let count = (self.keys / 10 / bench.rounds as u64).max(bench.connections as u64);
        let writes = plan(bench, address, seed, Until::Count(count));
        self.writes.push(&first_writes(&writes).await?);
        Ok(())
    }
}

impl Fit {
    /// The line for rates by the number of keys; `None` unless there are two numbers of keys.
    fn of<'a>(rates: impl Iterator<Item = (u64, &'a Series)>) -> Option<Self> {
        let points = rates.flat_map(|(keys, series)| {
            let values = series.values().iter();
            values.map(move |rate| (to_f64(keys).log10(), *rate))
        });
        let points: Vec<(f64, f64)> = points.collect();
        let count: f64 = points.iter().map(|_| 1.0_f64).sum();
        let across = points.iter().map(|point| point.0).sum::<f64>() / count;
        let up = points.iter().map(|point| point.1).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|it| (it.0 - across).powi(2)).sum();
        let common = points.iter().map(|it| (it.0 - across) * (it.1 - up));
        (spread > 1e-9).then(|| Self {
            slope: common.sum::<f64>() / spread,
            mean: (across, up),
        })
    }

    /// The rate with this number of keys.
    fn at(self, keys: u64) -> f64 {
        self.mean.1 + self.slope * (to_f64(keys).log10() - self.mean.0)
    }

    /// The change of the rate for ten times the keys, as a part of the rate with `least` keys.
    fn change(self, name: String, least: u64) -> Series {
        let mut series = Series::new(name, Unit::Percent);
        series.push(self.slope / self.at(least) * 100.0);
        series
    }
}

/// The rates by the number of keys, with their fitted lines.
fn plot(store: Store, sizes: &[Size], writes: Option<Fit>, replays: Option<Fit>) -> Plot {
    let first = sizes.iter().map(|it| (to_f64(it.keys), &it.writes.rate));
    let again = sizes.iter().map(|it| (to_f64(it.keys), &it.replays.rate));
    let mut lines = vec![
        Line::new("first writes", first),
        Line::new("replays from the store", again),
    ];
    for (name, fit) in [("first writes", writes), ("replays", replays)] {
        let Some(fit) = fit else { continue };
        let fitted = sizes.iter().map(|size| {
            let mut series = Series::new(name, Unit::PerSecond);
            series.push(fit.at(size.keys));
            (to_f64(size.keys), series)
        });
        let fitted: Vec<_> = fitted.collect();
        let points = fitted.iter().map(|(keys, series)| (*keys, series));
        lines.push(Line::new(format!("{name}, fitted"), points));
    }
    Plot {
        name: "",
        title: format!("Rates as keys accumulate, {store}"),
        across: Axis {
            name: "stored keys",
            unit: Unit::Count,
            scale: Scale::Log,
        },
        up: Axis {
            name: "requests",
            unit: Unit::PerSecond,
            scale: Scale::Linear,
        },
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        let mut series = Series::new("rate", Unit::PerSecond);
        for value in values {
            series.push(*value);
        }
        series
    }

    #[test]
    fn a_fitted_line_goes_through_rates_that_fall_evenly_with_the_logarithm() {
        let rates = [
            series(&[900.0, 1_100.0]),
            series(&[800.0]),
            series(&[600.0]),
        ];
        let sizes = [1_000, 10_000, 100_000];
        let fit = Fit::of(sizes.into_iter().zip(&rates)).unwrap();
        for (keys, rate) in [(1_000, 1_000.0), (10_000, 800.0), (100_000, 600.0)] {
            assert!((fit.at(keys) - rate).abs() < 1e-6, "{fit:?}");
        }
        let change = fit.change("change".to_owned(), 1_000);
        assert!((change.median() + 20.0).abs() < 1e-6, "{change:?}");
    }

    #[test]
    fn one_number_of_keys_has_no_line() {
        assert!(Fit::of([(1_000, &series(&[1.0, 2.0]))].into_iter()).is_none());
        assert!(Fit::of(std::iter::empty()).is_none());
    }
}
