//! A consumer with an inbox that reads from a broker.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax::{
    Random,
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys as _, Transaction as _},
};
use hapax_sqlite::{Settings, Sqlite};

use crate::events::clock;

/// The number of effects of these messages, each an id and a payload.
pub(crate) async fn effects(messages: &[(String, Vec<u8>)]) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let bits = AtomicU64::new(1);
    let random = Random::new(move || bits.fetch_add(1, Ordering::SeqCst));
    let settings = Settings::new(directory.path().join("consumer.db"), clock(), random);
    let store = Sqlite::open(settings).unwrap();
    store.migrate("consumer", &[]).await.unwrap();
    let mut effects = 0;
    for chunk in messages.chunks(200) {
        let mut tx = store.begin(None, Headers::new()).await.unwrap();
        for (id, payload) in chunk {
            let message = Message::new("consumer", "broker", id, payload).unwrap();
            match tx.accept(&message).await.unwrap() {
                Acceptance::First => effects += 1,
                Acceptance::Duplicate => {}
                Acceptance::Mismatch => panic!("{id} came with two payloads"),
            }
        }
        tx.commit().await.unwrap();
    }
    effects
}
