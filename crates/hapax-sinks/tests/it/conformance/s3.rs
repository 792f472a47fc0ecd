//! The S3 sink in the conformance suite, with a private moto behind a proxy.

use std::sync::Arc;

use hapax::sink::Sink;
use hapax_sinks::settings::DestinationSettings;
use hapax_testkit::{moto::Moto, sink::Arrival, sink_suite};
use serde_json::Value;

use super::service::{BehindProxy, Place};
use crate::sinks;

const BUCKET: &str = "events";

struct Bucket {
    moto: Moto,
}

type S3UnderTest = BehindProxy<Bucket>;

sink_suite!(S3UnderTest);

impl Place for Bucket {
    async fn start() -> Self {
        let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
        Self { moto }
    }

    fn address(&self) -> String {
        self.moto.address()
    }

    async fn create(&self) -> String {
        self.moto.create_bucket(BUCKET).await;
        BUCKET.to_owned()
    }

    async fn delete(&self) {
        self.moto.delete_bucket(BUCKET).await;
    }

    fn sink(endpoint: &str, bucket: &str, destination: DestinationSettings) -> Arc<dyn Sink> {
        let sink = sinks::s3(endpoint, destination, |it| {
            bucket.clone_into(&mut it.bucket);
            it.prefix = Some("law/lines".to_owned());
        });
        Arc::new(sink)
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let lines = self.moto.lines(BUCKET).await.into_iter();
        let arrival = |line: Value| Arrival {
            id: line["id"].as_str().unwrap().to_owned(),
            // Line breaks between tokens become spaces, so payloads are not compared byte for byte.
            payload: None,
        };
        lines.map(arrival).collect()
    }
}
