//! Stored rows at the end of a run: committed and rolled-back events, failed attempts and effects.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Client;

use super::Arrival;

/// The committed events, and what the store has recorded about their deliveries.
#[derive(Debug)]
pub(super) struct BrokerRows {
    /// The nonces of the committed events.
    pub(super) written: HashSet<String>,
    /// The nonces of the events that were rolled back.
    pub(super) rolled_back: HashSet<String>,
    /// The number of interrupted attempts at the webhook, by event id.
    pub(super) interrupted: HashMap<String, u64>,
    /// The number of failed attempts at the webhook, by event id.
    pub(super) failed: HashMap<String, u64>,
    /// The number of effects per consumer and nonce.
    pub(super) effects: HashMap<String, HashMap<String, u64>>,
    /// The number of times that a partition changed its owner.
    pub(super) takeovers: i64,
    /// The number of dead letters.
    pub(super) dead: i64,
}

const INTERRUPTED: &str = "
    SELECT event.event_id::text, attempt.outcome, count(*)
    FROM hapax.attempt AS attempt
    JOIN hapax.outbox_event AS event ON event.id = attempt.position
    WHERE split_part(attempt.destination, '/', 1) = 'hook'
      AND attempt.outcome IN ('interrupted', 'unavailable')
    GROUP BY 1, 2";

impl BrokerRows {
    pub(super) async fn read(client: &Client, sinks: &[String]) -> Self {
        let texts = async |sql: &str| -> HashSet<String> {
            let rows = client.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let number = async |sql: &str| -> i64 { client.query_one(sql, &[]).await.unwrap().get(0) };
        let (mut interrupted, mut failed) = (HashMap::new(), HashMap::new());
        for row in client.query(INTERRUPTED, &[]).await.unwrap() {
            let (id, outcome, count): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
            let ends = if outcome == "interrupted" {
                &mut interrupted
            } else {
                &mut failed
            };
            ends.insert(id, count.unsigned_abs());
        }
        let mut effects: HashMap<_, HashMap<_, _>> = sinks
            .iter()
            .filter(|sink| *sink != "webhook")
            .map(|sink| (sink.clone(), HashMap::new()))
            .collect();
        let counted = "SELECT consumer, nonce, count(*) FROM effect GROUP BY 1, 2";
        for row in client.query(counted, &[]).await.unwrap() {
            let (consumer, nonce, count): (String, String, i64) =
                (row.get(0), row.get(1), row.get(2));
            let of_consumer = effects.entry(consumer).or_default();
            of_consumer.insert(nonce, count.unsigned_abs());
        }
        Self {
            written: texts("SELECT nonce FROM written").await,
            rolled_back: texts("SELECT nonce FROM tried").await,
            interrupted,
            failed,
            effects,
            takeovers: number("SELECT coalesce(sum(epoch - 1), 0)::int8 FROM hapax.position").await,
            dead: number("SELECT count(*) FROM hapax.delivery WHERE state = 'dead'").await,
        }
    }

    /// Counts the committed events that are not in the ledger.
    pub(super) fn misses(&self, ledger: &[Arrival]) -> usize {
        let arrived = ledger.iter().map(|arrival| arrival.nonce.as_str());
        let arrived: HashSet<_> = arrived.collect();
        let written = self.written.iter();
        written
            .filter(|nonce| !arrived.contains(nonce.as_str()))
            .count()
    }
}

/// Counts the committed events. Called after all writers have ended.
pub(super) async fn written(client: &Client) -> usize {
    let counted = client.query_one("SELECT count(*) FROM written", &[]).await;
    usize::try_from(counted.unwrap().get::<_, i64>(0)).unwrap()
}

/// Whether no delivery is waiting, and each of the consumers had as many effects as events.
pub(super) async fn is_done(client: &Client, written: usize, consumers: usize) -> bool {
    let waits = "SELECT EXISTS (
        SELECT 1 FROM hapax.delivery WHERE state IN ('scheduled', 'retrying', 'blocked')
    )";
    if client.query_one(waits, &[]).await.unwrap().get(0) {
        return false;
    }
    let effects = client.query_one("SELECT count(*) FROM effect", &[]).await;
    let effects = usize::try_from(effects.unwrap().get::<_, i64>(0)).unwrap();
    // An additional effect is found when the effects are compared with the events.
    effects >= written * consumers
}
