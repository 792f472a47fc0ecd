//! The SQS sink in the conformance suite, with a private moto behind a proxy.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hapax::sink::Sink;
use hapax_sinks::{format::TextFormat, settings::DestinationSettings};
use hapax_testkit::{moto::Moto, sink::Arrival, sink_suite};
use serde_json::Value;

use super::service::{BehindProxy, Place, Received};
use crate::sinks;

const QUEUE: &str = "events";

struct Queue {
    moto: Moto,
    received: Received,
}

type SqsUnderTest = BehindProxy<Queue>;

sink_suite!(SqsUnderTest);

impl Place for Queue {
    async fn start() -> Self {
        Self {
            moto: Moto::start(env!("CARGO_TARGET_TMPDIR")).await,
            received: Received::default(),
        }
    }

    fn address(&self) -> String {
        self.moto.address()
    }

    async fn create(&self) -> String {
        self.moto.create_queue(QUEUE).await
    }

    async fn delete(&self) {
        self.moto.delete_queue(QUEUE).await;
    }

    fn sink(endpoint: &str, queue: &str, destination: DestinationSettings) -> Arc<dyn Sink> {
        let sink = sinks::sqs(&format!("{endpoint}{queue}"), destination, |it| {
            it.format = TextFormat::Raw;
        });
        Arc::new(sink)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let messages = self.moto.receive(QUEUE).await;
        self.received.add(messages.iter().map(arrival))
    }
}

/// The event of a message that a queue has received.
pub(super) fn arrival(message: &Value) -> Arrival {
    let attribute = |name: &str| {
        let attribute = &message["MessageAttributes"][name]["StringValue"];
        attribute.as_str().unwrap().to_owned()
    };
    let body = message["Body"].as_str().unwrap();
    let payload = if attribute("content_type") == "application/json" {
        Bytes::copy_from_slice(body.as_bytes())
    } else {
        let text: String = serde_json::from_str(body).unwrap();
        STANDARD.decode(text).unwrap().into()
    };
    Arrival {
        id: attribute("id"),
        payload: Some(payload),
    }
}
