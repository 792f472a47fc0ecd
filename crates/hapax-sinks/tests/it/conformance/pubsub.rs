//! The Pub/Sub sink in the conformance suite, with a private drongo behind a proxy. A subscription of
//! the topic receives the messages.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::sink::Sink;
use hapax_sinks::settings::DestinationSettings;
use hapax_testkit::{drongo::Drongo, sink::Arrival, sink_suite};
use serde_json::Value;

use super::service::{BehindProxy, Place, Received};
use crate::sinks;

const TOPIC: &str = "events";

struct Topic {
    drongo: Drongo,
    received: Received,
}

type PubsubUnderTest = BehindProxy<Topic>;

sink_suite!(PubsubUnderTest);

impl Place for Topic {
    async fn start() -> Self {
        Self {
            drongo: Drongo::start(env!("CARGO_TARGET_TMPDIR")).await,
            received: Received::default(),
        }
    }

    fn address(&self) -> String {
        self.drongo.address()
    }

    async fn create(&self) -> String {
        self.drongo.create_topic(TOPIC).await
    }

    async fn delete(&self) {
        self.drongo.delete_topic(TOPIC).await;
    }

    fn sink(endpoint: &str, topic: &str, destination: DestinationSettings) -> Arc<dyn Sink> {
        let sink = sinks::pubsub(endpoint, topic, destination, |_| {});
        Arc::new(sink)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let messages = self.drongo.receive(TOPIC).await;
        self.received.add(messages.iter().map(arrival))
    }
}

fn arrival(message: &Value) -> Arrival {
    let id = message["attributes"]["ce-id"].as_str().unwrap();
    // A message without data has no member for it.
    let data = message["data"].as_str().unwrap_or_default();
    Arrival {
        id: id.to_owned(),
        payload: Some(STANDARD.decode(data).unwrap().into()),
    }
}
