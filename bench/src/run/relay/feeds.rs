//! An outbox table that a feed reads, compared with a table source and with `hapax.emit`.
//!
//! Each side pays at another place: a feed leaves the writer alone and reads the whole log, a table
//! source updates every row, and `hapax.emit` runs in the writer's transaction.

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
    ("nothing", "an outbox table that nothing reads"),
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
/// The places in the figures.
const COMMITTED: usize = 0;
const DRAINED: usize = 4;

/// Runs the sides alternately.
pub(in crate::run) async fn feeds(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "feed")?;
    let (window, rows) = (given.window / 2, given.jobs);
    let (window_ms, backlog) = (window.as_millis().to_string(), rows.to_string());
    let rounds = given.rounds.min(3);
    let figure = |title: &str, name: &str, unit| Series::new(format!("{name}, {title}"), unit);
    let mut sides = SIDES.map(|(_, title)| FIGURES.map(|(name, unit)| figure(title, name, unit)));
    for round in 0..rounds {
        for turn in turns(SIDES.len(), round) {
            let database = bench.logical().await?.database().await?;
            let (url, kind) = (database.url(), SIDES[turn].0);
            let of = ["feed", kind, "--database", &url];
            let sizes = ["--window-ms", &window_ms, "--rows", &backlog];
            let said = parts::run(folder.path(), &[&of[..], &sizes[..]].concat()).await?;
            let figures = said.split_whitespace().map(str::parse);
            let figures: Vec<f64> = figures.collect::<Result<_, _>>()?;
            for (series, figure) in sides[turn].iter_mut().zip(figures) {
                series.push(figure);
            }
        }
        bench.progress(round);
    }
    let ratio = |name: &str, at: usize, over: usize, under: usize| {
        Series::ratio(name, &sides[over][at], &sides[under][at])
    };
    let ratios = [
        ratio("rows committed, a feed / nothing", COMMITTED, 1, 0),
        ratio("rows committed, a table source / nothing", COMMITTED, 2, 0),
        ratio("rows committed, `hapax.emit` / nothing", COMMITTED, 3, 0),
        ratio("drained, a feed / `hapax.emit`", DRAINED, 1, 3),
        ratio("drained, a table source / `hapax.emit`", DRAINED, 2, 3),
    ];
    let all = (0..FIGURES.len()).flat_map(|at| sides.iter().map(move |side| side[at].clone()));
    // A table that nothing reads has no delay.
    let measured = all.filter(|series| !series.median().is_nan());
    Ok(Section {
        title: "Feeds: an outbox table, and three ways to its events".to_owned(),
        how: format!(
            "`bench feed`: 8 connections commit rows of about 100 bytes, one per transaction, into \
             an outbox table that nothing reads, that a feed reads or that a table source moves, \
             or emit them with `hapax.emit`; {window:?} after 500ms of warm-up, while a relay in \
             the same process delivers the events to a sink that keeps nothing. The WAL of an \
             event is all that the server has written from the first of these rows until the last \
             event is settled. Before that, one connection commits 100 rows per second for \
             {window:?}; a delay is measured from the time at which the writer knows that its \
             commit has succeeded until the sink is offered the event. After that, {} rows are \
             committed while nothing reads, a thousand per transaction; they are drained from the \
             start of reader and relay until the last offer. {rounds} rounds alternately, each in \
             a new process with an empty database, on a server with `wal_level = logical`. Feed \
             and table are in the database of the outbox.",
            many(rows)
        ),
        series: measured.chain(ratios).collect(),
        ..Section::default()
    })
}
