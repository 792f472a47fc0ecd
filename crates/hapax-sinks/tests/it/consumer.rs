//! Stores for the tests, and a consumer with an inbox that reads from a broker.

use std::collections::HashMap;

use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys as _, Transaction as _},
};
use hapax_sqlite::{Settings, Sqlite};
use hapax_testkit::clock::seeded_random;
use tempfile::TempDir;

use crate::events::clock;

/// A new store with these tables, in a directory that is removed with the second value.
pub(crate) async fn store(tables: &str) -> (Sqlite, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    let store = Sqlite::open(Settings::new(path, clock(), seeded_random(1))).unwrap();
    store
        .migrate("test", &[(1, "tables", tables)])
        .await
        .unwrap();
    (store, directory)
}

/// The number of effects of these messages, each an id and a payload.
pub(crate) async fn effects(messages: &[(String, Vec<u8>)]) -> usize {
    accept_all(messages).await.values().sum()
}

/// Accepts these messages, each an id and a payload. Returns the number of effects by id.
async fn accept_all(messages: &[(String, Vec<u8>)]) -> HashMap<&str, usize> {
    let (store, _directory) = store("").await;
    let mut effects = HashMap::new();
    for chunk in messages.chunks(200) {
        let mut tx = store.begin(None, Headers::new()).await.unwrap();
        for (id, payload) in chunk {
            let message = Message::new("consumer", "broker", id, payload).unwrap();
            match tx.accept(&message).await.unwrap() {
                Acceptance::First => *effects.entry(id.as_str()).or_insert(0) += 1,
                Acceptance::Duplicate => {}
                Acceptance::Mismatch => panic!("{id} came with two payloads"),
            }
        }
        tx.commit().await.unwrap();
    }
    effects
}

/// Checks that these messages have one effect for each of `events` events.
pub(crate) async fn check_effects(messages: &[(String, Vec<u8>)], events: usize) {
    let effects = accept_all(messages).await;
    assert_eq!(effects.len(), events);
    assert!(effects.values().all(|times| *times == 1));
}
