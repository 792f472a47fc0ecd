//! The NATS sink in the conformance suite, with a private stream, through a proxy.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{self, stream};
use hapax::{event::NewEvent, sink::Sink};
use hapax_sinks::nats::Nats;
use hapax_testkit::{
    name::unused,
    proxy::Proxy,
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};

use crate::{
    nats::{context, read},
    sinks,
};

const SERVER: &str = "127.0.0.1:4222";
const TIMEOUT: Duration = Duration::from_secs(4);

struct Stream {
    sink: Arc<Nats>,
    proxy: Proxy,
    name: String,
    direct: jetstream::Context,
}

sink_suite!(Stream);

impl SinkUnderTest for Stream {
    async fn fresh() -> Self {
        let name = unused("hapax-law");
        let proxy = Proxy::to(SERVER);
        let direct = context(SERVER).await;
        let sink = sinks::nats(
            format!("nats://{}", proxy.address()),
            sinks::within(TIMEOUT),
            |it| it.subject = Some(format!("{name}.{{type}}")),
        );
        let made = direct.create_stream(config(&name)).await;
        made.unwrap_or_else(|error| panic!("no JetStream at {SERVER}: {error}"));
        Self {
            sink: Arc::new(sink),
            proxy,
            name,
            direct,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        let mut settings = config(&self.name);
        match mood {
            Mood::Accept => self.proxy.heal().await,
            Mood::Fail => {
                // The stream is full, and new messages are refused.
                settings.max_bytes = 1;
                settings.discard = stream::DiscardPolicy::New;
            }
            Mood::Refuse => settings.max_message_size = 1,
            Mood::Hang => self.proxy.black_hole(),
            Mood::Down => self.proxy.shut().await,
            Mood::Talk | Mood::Gone => return false,
        }
        self.direct.update_stream(settings).await.unwrap();
        true
    }

    async fn stray(&self) -> Option<NewEvent> {
        let mut settings = config(&self.name);
        settings.subjects = vec![format!("{}.order.>", self.name)];
        self.direct.update_stream(settings).await.unwrap();
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let messages = read(&self.direct, &self.name).await;
        let arrivals = messages.into_iter().map(|(id, payload)| Arrival {
            id,
            payload: Some(payload.into()),
        });
        arrivals.collect()
    }
}

fn config(name: &str) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        storage: stream::StorageType::Memory,
        ..stream::Config::default()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (direct, name) = (self.direct.clone(), self.name.clone());
        tokio::spawn(async move { direct.delete_stream(name).await });
    }
}
