//! RabbitMQ: a durable queue, persistent messages, publisher confirms.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use hapax::sink::Sink;
use hapax_sinks::{
    amqp::{Amqp, AmqpSettings},
    settings::DestinationSettings,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};

use super::{BATCH, PLACE, batch};

/// The delivery mode of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;

pub(super) fn sink(to: &str) -> anyhow::Result<Arc<dyn Sink>> {
    let settings = AmqpSettings {
        url: to.into(),
        routing_key: Some(PLACE.to_owned()),
        ..AmqpSettings::default()
    };
    let sink = Amqp::new(&settings, DestinationSettings::new("/bench"))?;
    Ok(Arc::new(sink))
}

/// Deletes the queue and creates it again.
pub(super) async fn anew(to: &str) -> anyhow::Result<()> {
    let (_connection, channel) = connect(to).await?;
    let delete = QueueDeleteOptions::default();
    channel.queue_delete(PLACE.into(), delete).await?;
    let durable = QueueDeclareOptions::durable();
    let declared = channel.queue_declare(PLACE.into(), durable, FieldTable::default());
    declared.await.context("cannot create a queue").map(|_| ())
}

pub(super) async fn count(to: &str) -> anyhow::Result<u64> {
    let (_connection, channel) = connect(to).await?;
    let there = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::durable()
    };
    let queue = channel.queue_declare(PLACE.into(), there, FieldTable::default());
    Ok(queue.await?.message_count().into())
}

/// Publishes batches, each confirmed before the next.
pub(super) async fn publish(to: &str, events: u64) -> anyhow::Result<()> {
    let (_connection, channel) = connect(to).await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    let mandatory = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let mut next = 0;
    while next < events {
        let mut confirms = Vec::with_capacity(BATCH);
        for (id, payload) in batch(next, events) {
            let properties = BasicProperties::default()
                .with_delivery_mode(PERSISTENT)
                .with_message_id(id.into());
            let sent =
                channel.basic_publish("".into(), PLACE.into(), mandatory, &payload, properties);
            confirms.push(sent.await.context("cannot publish")?);
        }
        next += confirms.len() as u64;
        for confirm in confirms {
            ensure!(confirm.await?.is_ack(), "the broker rejected a message");
        }
    }
    Ok(())
}

async fn connect(to: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(to, ConnectionProperties::default()).await;
    let connection = connection.context("cannot connect to RabbitMQ")?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}
