//! The inbox with millions of rows: new messages and duplicates, with and without a set in memory.
//!
//! A set in front of the inbox can answer duplicates of messages that it contains. A new message
//! needs its row in any case. The figures show what each of the two costs, and what the set saves.

use std::process::Command;

use super::{
    Bench, Store,
    folder::Folder,
    postgres::connect,
    report::{Section, Series, Unit},
    service::Running,
};
use crate::transact::Transacted;

/// What is accepted: the argument of `bench inbox`, whether the set is asked first, and the title.
const SIDES: [(&str, bool, &str); 5] = [
    ("new", false, "new messages"),
    ("new", true, "new messages, with the set in front"),
    ("recent", false, "duplicates of the newest messages"),
    ("recent", true, "the same duplicates, with the set in front"),
    ("any", false, "duplicates of any messages"),
];

/// Fills an inbox and accepts each kind of message in alternating rounds.
pub(super) async fn inbox(bench: &Bench, store: Store) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, &format!("inbox-{store}"))?;
    let server = match store {
        Store::Sqlite => None,
        Store::Postgres => Some(bench.server().await?.database().await?),
    };
    let file = folder.path().join("inbox.db").display().to_string();
    let database = if let Some(server) = &server {
        server.url()
    } else {
        file
    };
    let filled = accept(bench, &folder, &database, "fill", false).await?;
    super::say(&format!("  filled: {}\n", filled.trim()));
    let mut figures = SIDES.map(|(_, _, title)| {
        let latency = |at| Series::new(format!("{title}: {at}"), Unit::Millis);
        let rate = Series::new(title, Unit::PerSecond);
        [rate, latency("p50"), latency("p99")]
    });
    for round in 0..bench.rounds {
        for turn in 0..SIDES.len() {
            // Every second round has the reverse order.
            let turn = if round % 2 == 0 {
                turn
            } else {
                SIDES.len() - 1 - turn
            };
            if server.is_some() {
                connect(&database)
                    .await?
                    .batch_execute("CHECKPOINT")
                    .await?;
            }
            let (kind, front, _) = SIDES[turn];
            let said = accept(bench, &folder, &database, kind, front).await?;
            let Transacted { rate, median, tail } = Transacted::read(&said)?;
            for (series, figure) in figures[turn].iter_mut().zip([rate, median, tail]) {
                series.push(figure);
            }
        }
        bench.progress(round);
    }
    let ratio = |name, over: usize, under: usize| {
        Series::ratio(name, &figures[over][0], &figures[under][0])
    };
    let ratios = [
        ratio("new messages, with the set / without", 1, 0),
        ratio("duplicates of the newest, with the set / without", 3, 2),
        ratio("duplicates of the newest / new messages", 2, 0),
    ];
    let rates = figures.iter().map(|figure| figure[0].clone());
    let latencies = figures.iter().flat_map(|figure| figure[1..].to_vec());
    Ok(Section {
        title: format!("The inbox on {store}, with {} rows", bench.messages),
        how: format!(
            "`bench inbox`: 64 tasks accept messages without an effect, each in a transaction of \
             its own, in a new process for each round; {} rounds of {:?} after {:?} of warm-up. \
             The set contains the newest 100,000 messages, exactly, in memory; what it contains \
             is answered without the store. On PostgreSQL, a checkpoint precedes each round.",
            bench.rounds, bench.window, bench.warm_up
        ),
        series: rates.chain(ratios).chain(latencies).collect(),
        ..Section::default()
    })
}

/// Runs `bench inbox` and returns its output.
async fn accept(
    bench: &Bench,
    folder: &Folder,
    database: &str,
    kind: &str,
    front: bool,
) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["inbox", kind, "--database", database]);
    for (flag, value) in [
        ("--messages", u128::from(bench.messages)),
        ("--warm-up-ms", bench.warm_up.as_millis()),
        ("--window-ms", bench.window.as_millis()),
    ] {
        command.args([flag, &value.to_string()]);
    }
    command.args(front.then_some("--front"));
    let said = Running::start(command, &folder.path().join("inbox.log"))?;
    said.ended().await
}
