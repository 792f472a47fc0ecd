//! NATS JetStream: a stream that is stored in files.

use std::sync::Arc;

use anyhow::Context as _;
use async_nats::{
    HeaderMap,
    jetstream::{
        self, Context,
        stream::{Config, StorageType},
    },
};
use hapax::sink::Sink;
use hapax_sinks::{
    nats::{Nats, NatsSettings},
    settings::DestinationSettings,
};

use super::{BATCH, PLACE, batch};

const STREAM: &str = "BENCH";

pub(super) fn sink(to: &str) -> anyhow::Result<Arc<dyn Sink>> {
    let settings = NatsSettings {
        url: to.into(),
        subject: Some(PLACE.to_owned()),
        ..NatsSettings::default()
    };
    let sink = Nats::new(&settings, DestinationSettings::new("/bench"))?;
    Ok(Arc::new(sink))
}

/// Deletes the stream and creates it again.
pub(super) async fn anew(to: &str) -> anyhow::Result<()> {
    let context = connect(to).await?;
    // The stream may not exist.
    let _ = context.delete_stream(STREAM).await;
    let config = Config {
        name: STREAM.to_owned(),
        subjects: vec![PLACE.to_owned()],
        storage: StorageType::File,
        ..Config::default()
    };
    let made = context.create_stream(config).await;
    made.context("cannot create a stream").map(|_| ())
}

pub(super) async fn count(to: &str) -> anyhow::Result<u64> {
    let stream = connect(to).await?.get_stream(STREAM).await?;
    let info = stream.get_info().await?;
    Ok(info.state.messages)
}

/// Publishes batches, each acknowledged before the next.
pub(super) async fn publish(to: &str, events: u64) -> anyhow::Result<()> {
    let context = connect(to).await?;
    let mut next = 0;
    while next < events {
        let mut acks = Vec::with_capacity(BATCH);
        for (id, payload) in batch(next, events) {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id);
            let sent = context
                .publish_with_headers(PLACE, headers, payload.into())
                .await;
            acks.push(sent.context("cannot publish")?);
        }
        next += acks.len() as u64;
        for ack in acks {
            ack.await
                .context("the broker did not acknowledge a message")?;
        }
    }
    Ok(())
}

async fn connect(to: &str) -> anyhow::Result<Context> {
    let client = async_nats::connect(to).await;
    let client = client.with_context(|| format!("cannot connect to {to}"))?;
    Ok(jetstream::new(client))
}
