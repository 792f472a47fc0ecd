//! Fills an outbox as fast as its store allows, with thousands of events per transaction and
//! several concurrent transactions.

use std::time::Instant;

use anyhow::Context as _;
use hapax::{
    event::{Headers, NewEvent, Payload},
    key::Tenant,
    limits::EVENTS_PER_TRANSACTION_MAX,
    store::{Keys as _, Transaction as _},
};
use hapax_postgres::Postgres;
use tokio::task::JoinSet;

use super::Outbox;

/// Number of concurrent transactions.
const WRITERS: u64 = 4;
/// Number of aggregates of the events.
const AGGREGATES: u64 = 1_000;

/// The outbox, and the events to write.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
    #[command(flatten)]
    spread: Spread,
}

/// The events to write.
#[derive(Clone, Debug, clap::Args)]
struct Spread {
    /// Number of events, of about 100 bytes each
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Number of the first event
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Tenant of the events
    #[arg(long)]
    tenant: Option<String>,
}

impl Flags {
    pub(super) async fn run(self) -> anyhow::Result<String> {
        let store = self.outbox.open().await?;
        let start = Instant::now();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(store.clone(), self.spread.clone(), writer));
        }
        while let Some(ended) = writers.join_next().await {
            ended.context("a writer panicked")??;
        }
        store.close();
        Ok(format!("{}", start.elapsed().as_secs_f64()))
    }
}

/// Writes every n-th transaction, where n is the number of writers.
async fn write(store: Postgres, spread: Spread, writer: u64) -> anyhow::Result<()> {
    let tenant = spread.tenant.clone().map(Tenant::new).transpose()?;
    let size = EVENTS_PER_TRANSACTION_MAX as u64;
    let mut next = writer * size;
    while next < spread.events {
        let mut tx = store.begin(tenant.clone(), Headers::new()).await?;
        for number in next..spread.events.min(next + size) {
            tx.emit(event(spread.first + number))?;
        }
        tx.commit().await?;
        next += WRITERS * size;
    }
    Ok(())
}

/// An event of about 100 bytes that contains its number.
pub(crate) fn event(number: u64) -> NewEvent {
    let payload = format!(
        r#"{{"n":{number},"customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue"}}"#
    );
    NewEvent::new("order.created", Payload::Json(payload))
        .about("order", format!("ord_{:04}", number % AGGREGATES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_about_100_bytes() {
        for number in [0, 9_999_999] {
            let length = event(number).payload.bytes().len();
            assert!((85..=110).contains(&length), "{length}");
        }
    }
}
