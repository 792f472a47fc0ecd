//! Target 9: webhooks end to end, from the first `emit` until the receiver has accepted all.

use std::time::Instant;

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit, Verdict},
    },
    latency::{Line, PATIENCE, counted},
    many,
    producer::to_f64,
    turns,
};

/// Number of concurrent writers.
const WRITERS: u64 = 32;
/// Number of events per transaction.
const SIZES: [u64; 2] = [100, 1];
/// Events per second of the paced run.
const PACE: f64 = 500.0;

/// Runs the transaction sizes alternately.
pub(in crate::run) async fn webhooks(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "webhooks")?;
    let events = given.webhooks;
    let paced = counted(PACE, given.window);
    let mut rates = [
        "webhooks delivered, 100 events to a transaction",
        "webhooks delivered, one event to a transaction",
    ]
    .map(|name| Series::new(name, Unit::PerSecond));
    let mut repeated = Series::new("deliveries that were repeated", Unit::Count);
    let latency = |at| Series::new(format!("commit to delivered, 500/s: {at}"), Unit::Millis);
    let [mut median, mut tail] = ["p50", "p99"].map(latency);
    for round in 0..given.rounds {
        for turn in turns(SIZES.len(), round) {
            let mut line = Line::lay(bench, &folder, events + paced, None).await?;
            let start = Instant::now();
            let writing = (WRITERS, SIZES[turn]);
            line.producer.burst(line.next, events, writing).await?;
            line.next += events;
            line.receiver.until(line.next, PATIENCE).await?;
            rates[turn].push(to_f64(events) / start.elapsed().as_secs_f64());
            if turn == 0 {
                let delays = line.paced(PACE, paced).await?;
                let millis = |thousandths| delays.quantile(thousandths).as_secs_f64() * 1e3;
                median.push(millis(500));
                tail.push(millis(990));
            }
            let seen = line.receiver.seen().await?;
            repeated.push(to_f64(seen.deliveries - seen.events));
        }
        bench.progress(round);
    }
    let verdicts = vec![Verdict::at_least("9", &rates[0], 8_000.0)];
    Ok(Section {
        title: "Target 9: webhooks end to end".to_owned(),
        how: format!(
            "{} events of about 100 bytes are emitted by {WRITERS} writers as fast as possible, \
             100 or one per transaction, and delivered, signed, over 32 connections to a receiver \
             in a separate process; {} rounds alternately, each on new processes with an empty \
             database. The time is measured from the first `emit` until the receiver has every \
             event, by number and by id. It verifies the first hundred signatures and one in a \
             thousand after them. The target of 8,000/s is 8 times the 1,000 to 1,180/s that are \
             known of svix-server 1.100 on such a machine (memory queue, 32 clients; p50 4.1 ms, \
             p99 7.6 ms); svix-server is not measured here.",
            many(events),
            given.rounds
        ),
        series: rates.into_iter().chain([median, tail, repeated]).collect(),
        verdicts,
        ..Section::default()
    })
}
