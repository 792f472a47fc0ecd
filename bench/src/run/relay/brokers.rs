//! Target 11: the sinks of brokers, compared with their clients alone.

use hapax_testkit::servers::Server;

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit, Verdict},
    },
    many, parts,
    producer::to_f64,
    turns,
};

/// A broker with its results.
struct Broker {
    name: &'static str,
    url: String,
    rates: [Series; 3],
}

impl Broker {
    fn new(name: &'static str, title: &str, url: String) -> Self {
        let sides = ["a bare batched publisher", "the sink", "the whole relay"];
        let rates = sides.map(|it| Series::new(format!("{title}, {it}"), Unit::PerSecond));
        Self { name, url, rates }
    }
}

/// Runs client, sink and relay alternately.
pub(in crate::run) async fn broker_sinks(bench: &Bench) -> anyhow::Result<Section> {
    let given = &bench.relay;
    let folder = Folder::make(&bench.dir, "broker-sinks")?;
    let store = folder.path().join("nats");
    let jetstream = format!("jetstream {{ store_dir: \"{}\" }}", store.display());
    let server = Server::nats(&jetstream).await;
    let nats = format!("nats://{}", server.address());
    let mut brokers = [
        Broker::new("nats", "NATS JetStream", nats),
        Broker::new("amqp", "RabbitMQ", bench.amqp.clone()),
    ];
    let database = bench.server().await?.database().await?;
    let url = database.url();
    parts::fill(folder.path(), &url, given.messages).await?;
    let events = given.messages.to_string();
    for round in 0..given.rounds {
        for Broker {
            name,
            url: to,
            rates,
        } in &mut brokers
        {
            let publish = |through| ["publish", name, through, "--to", to, "--events", &events];
            for turn in turns(rates.len(), round) {
                let seconds = match turn {
                    0 => parts::run(folder.path(), &publish("bare")).await?,
                    1 => parts::run(folder.path(), &publish("sink")).await?,
                    _ => {
                        parts::run(folder.path(), &publish("anew")).await?;
                        let named = format!("{name}-{round}");
                        let into = ["--into", name, "--to", to, "--destination", &named];
                        let drain = ["relay", "drain", "--database", &url, "--events", &events];
                        let drain = [&drain[..], &into[..]].concat();
                        let said = parts::run(folder.path(), &drain).await?;
                        parts::run(folder.path(), &publish("look")).await?;
                        crate::relay::Drained::read(&said)?.seconds.to_string()
                    }
                };
                rates[turn].push(to_f64(given.messages) / seconds.trim().parse::<f64>()?);
            }
        }
        bench.progress(round);
    }
    Ok(section(bench, brokers))
}

fn section(bench: &Bench, brokers: [Broker; 2]) -> Section {
    let given = &bench.relay;
    let over = |broker: &Broker, side: usize| {
        let [bare, ..] = &broker.rates;
        let name = format!("{} / bare", broker.rates[side].name());
        Series::ratio(name, &broker.rates[side], bare)
    };
    let sinks = brokers.each_ref().map(|broker| over(broker, 1));
    let relays = brokers.each_ref().map(|broker| over(broker, 2));
    let verdicts = sinks
        .each_ref()
        .map(|ratio| Verdict::at_least("11", ratio, 0.7));
    let rates = brokers.into_iter().flat_map(|broker| broker.rates);
    Section {
        title: "Target 11: brokers".to_owned(),
        how: format!(
            "{} events of about 100 bytes, a thousand at a time, every acknowledgement awaited \
             before the next thousand: by the client alone, with the id by which the broker \
             deduplicates, and by the sink with the same client, as CloudEvents; {} rounds \
             alternately. The relay delivers the same events from PostgreSQL, several batches at \
             once. NATS is a private server with its stream in files in the folder of --dir. \
             RabbitMQ is the server of --amqp, with a durable queue and persistent messages. \
             Stream and queue are created again each time, and must contain every event at the \
             end.",
            many(given.messages),
            given.rounds
        ),
        series: rates.chain(sinks).chain(relays).collect(),
        verdicts: verdicts.into(),
        ..Section::default()
    }
}
