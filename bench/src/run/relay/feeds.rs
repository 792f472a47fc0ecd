//! An outbox table that a feed reads, compared with a table source and with `hapax.emit`.
//!
//! Each has its cost in another place: a feed decodes the whole log and leaves the writer alone, a
//! table source updates every row, and `hapax.emit` runs in the writer's transaction.

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit},
    },
    many, parts, turns,
};

/// The arguments of `bench feed`, and the titles.
const SIDES: [(&str, &str); 4] = [
    ("nothing", "no reader"),
    ("feed", "a feed"),
    ("table-source", "a table source"),
    ("emit", "`hapax.emit`"),
];
/// The figures, in the order of the output of `bench feed`.
const FIGURES: [(&str, Unit); 5] = [
    ("rows committed", Unit::PerSecond),
    ("bytes of WAL per event", Unit::Count),
    ("commit to offer, 100/s: p50", Unit::Millis),
    ("commit to offer, 100/s: p99", Unit::Millis),
    ("drained", Unit::PerSecond),
];

/// Runs the sides alternately.
pub(in crate::run) async fn feeds(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "feed")?;
    let window = given.window / 2;
    let (window_ms, rows) = (window.as_millis().to_string(), given.jobs.to_string());
    let rounds = given.rounds.min(3);
    let series = |name: &str, unit, side: &str| Series::new(format!("{name}, {side}"), unit);
    let mut sides = SIDES.map(|(_, side)| FIGURES.map(|(name, unit)| series(name, unit, side)));
    for round in 0..rounds {
        for turn in turns(SIDES.len(), round) {
            let database = bench.logical().await?.database().await?;
            let url = database.url();
            let of = ["feed", SIDES[turn].0, "--database", &url];
            let flags = ["--window-ms", &window_ms, "--rows", &rows];
            let said = parts::run(folder.path(), &[&of[..], &flags[..]].concat()).await?;
            for (series, figure) in sides[turn].iter_mut().zip(said.split_whitespace()) {
                series.push(figure.parse()?);
            }
        }
        bench.progress(round);
    }
    let ratios = [1, 2, 3].map(|side: usize| {
        let name = format!("rows committed, {} / no reader", SIDES[side].1);
        Series::ratio(name, &sides[side][0], &sides[0][0])
    });
    let all = (0..FIGURES.len()).flat_map(|at| sides.iter().map(move |side| side[at].clone()));
    // Without a reader there is no delay.
    let measured = all.filter(|series| !series.median().is_nan());
    Ok(Section {
        title: "Feeds: an outbox table, and three ways to its events".to_owned(),
        how: format!(
            "`bench feed`: 8 connections commit rows of about 100 bytes, one per transaction, for \
             {window:?} after 500ms of warm-up: into an outbox table that has no reader, that a \
             feed reads or that a table source moves, or with `hapax.emit`. A relay in the same \
             process delivers the events to a sink that keeps nothing. The WAL of an event is \
             everything that the server writes from the first of these rows until the last event \
             is settled. Before, one connection commits 100 rows per second for {window:?}; the \
             delay is from the time at which the writer knows that its commit has succeeded until \
             the sink is offered the event. Afterwards, {} rows are committed while nothing reads, \
             a thousand per transaction, and drained: from the start of reader and relay until \
             the last offer. {rounds} rounds alternately, each in a new process with an empty \
             database, which contains the table and the outbox.",
            many(given.jobs)
        ),
        series: measured.chain(ratios).collect(),
        ..Section::default()
    })
}
