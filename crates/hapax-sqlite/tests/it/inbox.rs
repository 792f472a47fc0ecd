//! The inbox of a database from a version in which message ids were not separate per source.

use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys, Transaction},
};
use hapax_sqlite::{
    Sqlite,
    rusqlite::{Connection, params},
};

use crate::fixture::Fixture;

/// The migrations of the previous version.
const BEFORE: [&str; 6] = [
    include_str!("../../migrations/0001_keys_outbox_inbox_deliveries.sql"),
    include_str!("../../migrations/0002_phased_requests.sql"),
    include_str!("../../migrations/0003_leases.sql"),
    include_str!("../../migrations/0004_sagas.sql"),
    include_str!("../../migrations/0005_known.sql"),
    include_str!("../../migrations/0006_settlements.sql"),
];

#[tokio::test]
async fn what_was_accepted_before_the_upgrade_is_known_by_its_stored_source() {
    let fixture = Fixture::new().await;
    let mut settings = fixture.settings();
    settings.path = fixture.directory.path().join("before.db");
    fixture.store.close().await.unwrap();
    let before = Connection::open(&settings.path).unwrap();
    record(&before, &Connection::open(fixture.path()).unwrap());
    let accepted = [
        ("ledger", "evt_1", "bank", "x"),
        ("ledger", "evt_2", "marketplace", "x"),
        ("mailer", "evt_1", "marketplace", "y"),
    ];
    for (consumer, id, source, payload) in accepted {
        let message = sent(consumer, source, id, payload);
        let row = params![consumer, id, source, message.payload_hash, 7];
        let sql = "INSERT INTO hapax_inbox_message
            (consumer, message_id, source, payload_hash, received_at, processed_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
        before.execute(sql, row).unwrap();
    }
    drop(before);

    let store = Sqlite::open(settings.clone()).unwrap();
    for (consumer, id, source, payload) in accepted {
        let again = take(&store, &sent(consumer, source, id, payload)).await;
        assert_eq!(again, Acceptance::Duplicate, "{id} of {source}");
    }
    for (source, payload, told) in [
        ("bank", "y", Acceptance::Mismatch),
        ("marketplace", "y", Acceptance::First),
        ("marketplace", "y", Acceptance::Duplicate),
    ] {
        let accepted = take(&store, &sent("ledger", source, "evt_1", payload)).await;
        assert_eq!(accepted, told, "{source} {payload}");
    }
    store.close().await.unwrap();
    // When it is opened again, its tables are compared with those that the migrations create.
    let store = Sqlite::open(settings).unwrap();
    let kept =
        "SELECT count(*) FROM hapax_inbox_message WHERE received_at = 7 AND processed_at = 7";
    let kept = store.read(move |db| db.query_row(kept, [], |row| row.get::<_, i64>(0)));
    assert_eq!(kept.await.unwrap(), 3);
}

/// Creates the tables of the previous version, and the records of its migrations.
fn record(before: &Connection, newest: &Connection) {
    let record = "SELECT sql FROM sqlite_schema WHERE name = 'hapax_migration'";
    let record: String = newest.query_row(record, [], |row| row.get(0)).unwrap();
    before.execute_batch(&record).unwrap();
    for (version, sql) in (1_u32..).zip(BEFORE) {
        before.execute_batch(sql).unwrap();
        let note = "SELECT name, checksum FROM hapax_migration
            WHERE namespace = 'hapax' AND version = ?1";
        let read = newest.query_row(note, [version], |row| Ok((row.get(0)?, row.get(1)?)));
        let (name, sum): (String, String) = read.unwrap();
        let sql = "INSERT INTO hapax_migration VALUES ('hapax', ?1, ?2, ?3, 0)";
        before.execute(sql, params![version, name, sum]).unwrap();
    }
}

fn sent(consumer: &str, source: &str, id: &str, payload: &str) -> Message {
    Message::new(consumer, source, id, payload.as_bytes()).unwrap()
}

async fn take(store: &Sqlite, message: &Message) -> Acceptance {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let accepted = tx.accept(message).await.unwrap();
    tx.commit().await.unwrap();
    accepted
}
