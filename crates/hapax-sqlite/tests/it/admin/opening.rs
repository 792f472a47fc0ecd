//! Which databases a handle opens, and the errors of the others.

use hapax::admin::{AdminError, AuditAdmin as _, AuditFilter, DestinationAdmin as _};
use hapax_sqlite::{OpenError, SchemaError, SqliteAdmin, rusqlite::Connection};
use hapax_testkit::assert_matches;

use super::scene::{beside, ops};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_database_that_does_not_exist_is_not_created() {
    let fixture = Fixture::new().await;
    let path = fixture.directory.path().join("other.db");
    let refused = SqliteAdmin::open(fixture.settings_at(path.clone())).unwrap_err();
    assert_matches!(refused, OpenError::Missing { .. });
    assert!(refused.to_string().contains("other.db"), "{refused}");
    let left: Vec<_> = std::fs::read_dir(fixture.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("other"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_database_without_a_store_is_refused_and_not_changed() {
    let fixture = Fixture::new().await;
    let path = fixture.directory.path().join("other.db");
    for content in ["", "CREATE TABLE note (text TEXT)"] {
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(content).unwrap();
        drop(conn);
        let before = std::fs::read(&path).unwrap_or_default();
        let refused = SqliteAdmin::open(fixture.settings_at(path.clone())).unwrap_err();
        let OpenError::Schema { source, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_matches!(source, SchemaError::Absent);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_as_damaged() {
    let fixture = Fixture::new().await;
    let path = fixture.directory.path().join("other.db");
    std::fs::write(
        &path,
        "not a database, but long enough to have a header".repeat(99),
    )
    .unwrap();
    let refused = SqliteAdmin::open(fixture.settings_at(path)).unwrap_err();
    assert_matches!(refused, OpenError::Corrupt { .. });
}

#[tokio::test]
async fn a_store_of_another_version_is_refused_with_what_to_run() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let conn = Connection::open(fixture.path()).unwrap();
    let newest = "SELECT max(version) FROM hapax_migration WHERE namespace = 'hapax'";
    let newest: u32 = conn.query_row(newest, [], |row| row.get(0)).unwrap();
    let refused = || match SqliteAdmin::open(fixture.settings()).unwrap_err() {
        OpenError::Schema { source, .. } => source,
        other => panic!("{other:?}"),
    };

    let newer =
        "INSERT INTO hapax_migration SELECT namespace, version + 1, name, checksum, applied_at
        FROM hapax_migration WHERE namespace = 'hapax' ORDER BY version DESC LIMIT 1";
    conn.execute_batch(newer).unwrap();
    let newer = refused();
    let found_newer = matches!(newer, SchemaError::Newer { found, .. } if found == newest + 1);
    assert!(found_newer, "{newer:?}");

    let older = format!("DELETE FROM hapax_migration WHERE version >= {newest}");
    conn.execute_batch(&older).unwrap();
    let refused = refused();
    assert!(
        refused.to_string().contains("start the service"),
        "{refused}"
    );
    let found_older = matches!(refused, SchemaError::Older { found, known, .. }
        if found == newest - 1 && known == newest);
    assert!(found_older, "{refused:?}");
}

/// A newer version of the service may be started while a console of this version is open.
#[tokio::test]
async fn a_handle_refuses_a_database_that_was_migrated_since_it_was_opened() {
    let fixture = Fixture::new().await;
    let admin = beside(&fixture);
    fixture.store.close().await.unwrap();
    let conn = Connection::open(fixture.path()).unwrap();
    // A service may migrate its own tables.
    conn.execute_batch("CREATE TABLE receipt (id INTEGER)")
        .unwrap();
    admin.partitions(None).await.unwrap();
    let newer =
        "INSERT INTO hapax_migration SELECT namespace, version + 1, name, checksum, applied_at
        FROM hapax_migration WHERE namespace = 'hapax' ORDER BY version DESC LIMIT 1;
        CREATE TABLE hapax_later (id INTEGER)";
    conn.execute_batch(newer).unwrap();
    let refused = admin.partitions(None).await.unwrap_err();
    let AdminError::Store(refused) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        refused.error_chain().contains("newer version"),
        "{}",
        refused.error_chain()
    );
    assert!(admin.pause_destination(ops(), "orders").await.is_err());
}

#[tokio::test]
async fn it_opens_beside_a_store_in_either_order() {
    let fixture = Fixture::new().await;
    let admin = beside(&fixture);
    admin
        .audit_log(ops(), &AuditFilter::default(), None, 10)
        .await
        .unwrap();
    fixture.store.close().await.unwrap();
    // Without a running store, too, and it does not keep the next one out.
    admin.partitions(None).await.unwrap();
    let store = hapax_sqlite::Sqlite::open(fixture.settings()).unwrap();
    admin.partitions(None).await.unwrap();
    let own = store.admin().unwrap();
    own.partitions(None).await.unwrap();
    store.close().await.unwrap();
    admin.close().await;
    assert!(admin.partitions(None).await.is_err());
}
