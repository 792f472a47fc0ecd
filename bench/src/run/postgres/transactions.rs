//! Targets 10 and 13: the cost of an event for its producer, and of the inbox for a consumer.
//!
//! Four kinds of business transaction are compared, with the store and without HTTP: an order, an
//! order with one event, an order after one accepted message, and an order with a message that is
//! accepted at the commit.

use std::process::Command;

use super::super::{
    Bench,
    folder::Folder,
    report::{Section, Series, Unit, Verdict},
    service::Running,
};
use crate::transact::Transacted;

/// The number of tasks, and the connections that they share.
const TASKS: usize = 64;
const CONNECTIONS: usize = 16;

/// One kind of transaction.
struct Kind {
    name: &'static str,
    figures: [Series; 3],
}

impl Kind {
    fn new(name: &'static str, title: &str) -> Self {
        let latency = |at| Series::new(format!("{title}: {at}"), Unit::Millis);
        Self {
            name,
            figures: [
                Series::new(title, Unit::PerSecond),
                latency("p50"),
                latency("p99"),
            ],
        }
    }

    fn rate(&self) -> &Series {
        &self.figures[0]
    }
}

/// Runs the kinds alternately.
pub(in crate::run) async fn transactions(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "postgres-transactions")?;
    let mut kinds = [
        Kind::new("effect", "transactions with an order"),
        Kind::new("emit", "transactions with an order and an event"),
        Kind::new("accept", "transactions with a message and an order"),
        Kind::new(
            "accept-at-commit",
            "transactions with an order and a message at the commit",
        ),
    ];
    for round in 0..bench.rounds {
        for turn in 0..kinds.len() {
            // Every second round has the reverse order.
            let turn = if round % 2 == 0 {
                turn
            } else {
                kinds.len() - 1 - turn
            };
            let kind = &mut kinds[turn];
            let Transacted { rate, median, tail } = transact(bench, &folder, kind.name).await?;
            for (series, figure) in kind.figures.iter_mut().zip([rate, median, tail]) {
                series.push(figure);
            }
        }
        bench.progress(round);
    }
    let [effect, emit, accept, at_commit] = &kinds;
    let ratio = |name: &str, over: &Kind| Series::ratio(name, over.rate(), effect.rate());
    let ratios = [
        ratio("with an event / without", emit),
        ratio("with a message at the commit / without", at_commit),
        ratio("with a message / without", accept),
    ];
    let verdicts = vec![
        Verdict::at_least("10", &ratios[0], 0.85),
        Verdict::at_least("13", &ratios[1], 0.85),
        Verdict::at_least("13", &ratios[2], 0.85),
    ];
    let rates = kinds.iter().map(|kind| kind.rate().clone());
    let latencies = kinds.iter().flat_map(|kind| kind.figures[1..].to_vec());
    Ok(Section {
        title: "Targets 10 and 13: an event and a message in a transaction".to_owned(),
        how: format!(
            "`bench transact`: {TASKS} tasks begin, insert an order and commit, each awaited, \
             with the store over {CONNECTIONS} connections; with one `emit`, with one `accept` \
             before the insert, with one message accepted by the commit, or with none of these. {} \
             rounds of {:?} after {:?} of \
             warm-up, each in a new process with an empty database, after a checkpoint.",
            bench.rounds, bench.window, bench.warm_up
        ),
        series: rates.chain(ratios).chain(latencies).collect(),
        verdicts,
        ..Section::default()
    })
}

async fn transact(bench: &Bench, folder: &Folder, kind: &str) -> anyhow::Result<Transacted> {
    let database = bench.server().await?.database().await?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["transact", kind, "--database", &database.url()]);
    for (flag, value) in [
        ("--tasks", TASKS as u128),
        ("--connections", CONNECTIONS as u128),
        ("--warm-up-ms", bench.warm_up.as_millis()),
        ("--window-ms", bench.window.as_millis()),
    ] {
        command.args([flag, &value.to_string()]);
    }
    let said = Running::start(command, &folder.path().join("transact.log"))?;
    Transacted::read(&said.ended().await?)
}
