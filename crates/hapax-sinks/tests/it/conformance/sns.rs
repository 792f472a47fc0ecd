//! The SNS sink in the conformance suite, with a private moto behind a proxy. A queue that is
//! subscribed to the topic receives the messages.

use std::sync::Arc;

use hapax::sink::Sink;
use hapax_sinks::{format::TextFormat, settings::DestinationSettings};
use hapax_testkit::{moto::Moto, sink::Arrival, sink_suite};

use super::{
    service::{BehindProxy, Place, Received},
    sqs::arrival,
};
use crate::sinks;

const TOPIC: &str = "events";

struct Topic {
    moto: Moto,
    received: Received,
}

type SnsUnderTest = BehindProxy<Topic>;

sink_suite!(SnsUnderTest);

impl Place for Topic {
    async fn start() -> Self {
        let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
        moto.create_queue(TOPIC).await;
        Self {
            moto,
            received: Received::default(),
        }
    }

    fn address(&self) -> String {
        self.moto.address()
    }

    async fn create(&self) -> String {
        self.moto.create_topic(TOPIC).await
    }

    async fn delete(&self) {
        self.moto.delete_topic(TOPIC).await;
    }

    fn sink(endpoint: &str, topic: &str, destination: DestinationSettings) -> Arc<dyn Sink> {
        let sink = sinks::sns(endpoint, topic, destination, |it| {
            it.format = TextFormat::Raw;
        });
        Arc::new(sink)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let messages = self.moto.receive(TOPIC).await;
        self.received.add(messages.iter().map(arrival))
    }
}
