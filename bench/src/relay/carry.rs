//! Runs a relay with webhooks until SIGTERM, as in production.
//!
//! Webhooks are signed. A failed event is retried every second, so that the time in which a
//! destination catches up depends on the relay and not on the retry schedule.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hapax::{
    relay::{Destination, Order, Relay},
    retry::Schedule,
    sink::Sink,
};
use hapax_sinks::{
    settings::DestinationSettings,
    webhook::{Webhook, WebhookSettings},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{receive::SECRET, sources::clock};

use super::{Outbox, Who};

/// Number of seconds during which a failed event is retried.
const PATIENCE: usize = 600;

/// The outbox and the destinations.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
    #[command(flatten)]
    who: Who,
    /// Name and URL of a destination; may be repeated
    #[arg(long = "webhook", value_name = "NAME=URL", required = true)]
    webhooks: Vec<String>,
    /// Connections to each destination
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Keeps the order of each aggregate
    #[arg(long)]
    ordered: bool,
}

impl Flags {
    pub(super) async fn run(self) -> anyhow::Result<String> {
        let mut terminate = signal(SignalKind::terminate())?;
        let store = self.outbox.open().await?;
        let destinations = self.webhooks.iter().map(|named| self.destination(named));
        let destinations = destinations.collect::<anyhow::Result<_>>()?;
        let relay = Relay::spawn(
            &store,
            destinations,
            &self.who.settings(),
            &store.notifier(),
        );
        terminate.recv().await;
        relay.drain().await;
        store.close();
        Ok(String::new())
    }

    fn destination(&self, named: &str) -> anyhow::Result<Destination> {
        let (name, url) = named
            .split_once('=')
            .context("--webhook: expected NAME=URL")?;
        let settings = WebhookSettings {
            url: url.to_owned(),
            secret: SECRET.into(),
            allow: vec!["127.0.0.0/8".parse()?],
            ..WebhookSettings::default()
        };
        let webhook = Webhook::new(&settings, DestinationSettings::default(), clock())?;
        let sink: Arc<dyn Sink> = Arc::new(webhook);
        let waits = std::iter::repeat_n(Duration::from_secs(1), PATIENCE);
        let order = if self.ordered {
            Order::Key
        } else {
            Order::None
        };
        Ok(Destination::new(name, sink)
            .schedule(Schedule::new(waits, 0))
            .concurrency(self.connections)
            .order(order))
    }
}
