//! Opening a store: which files are refused, and with which error.

use hapax_sqlite::{OpenError, SchemaError, Settings, Sqlite, rusqlite::Connection};
use hapax_testkit::assert_matches;

use crate::fixture::{Fixture, NOTES};

/// These files contain stored responses and payloads in plain text.
#[cfg(unix)]
#[tokio::test]
async fn what_is_made_is_for_its_owner_alone_and_what_was_there_keeps_its_rights() {
    use std::os::unix::fs::PermissionsExt as _;

    let fixture = Fixture::new().await;
    let mode = |ending: &str| {
        let mut path = fixture.path().as_os_str().to_owned();
        path.push(ending);
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777
    };
    for ending in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(ending), 0o600, "{ending:?}");
    }
    fixture.store.close().await.unwrap();
    let readable = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(fixture.path(), readable).unwrap();
    let store = Sqlite::open(fixture.settings()).unwrap();
    assert_eq!((mode(""), mode("-wal")), (0o640, 0o640));
    store.close().await.unwrap();
}

/// Closes a store, runs `tamper` on its file, and checks that opening it is refused.
async fn check_refused(tamper: &str, fits: impl FnOnce(&SchemaError) -> bool) {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    Connection::open(fixture.path())
        .unwrap()
        .execute_batch(tamper)
        .unwrap();
    match Sqlite::open(fixture.settings()) {
        Err(OpenError::Schema { source, .. }) => assert!(fits(&source), "{tamper}: {source}"),
        other => panic!("{tamper}: {other:?}"),
    }
}

fn open(settings: Settings) -> OpenError {
    Sqlite::open(settings).expect_err("the store should be refused")
}

#[tokio::test]
async fn a_second_opener_is_refused_at_once_and_by_name() {
    let fixture = Fixture::new().await;
    let refused = open(fixture.settings());
    assert_matches!(refused, OpenError::InUse { .. });
    assert!(refused.to_string().contains("test.db"), "{refused}");
    fixture
        .store
        .write(|_| Ok(()))
        .await
        .expect("the first store still works");
}

#[tokio::test]
async fn whoever_comes_by_a_link_is_a_second_opener() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(fixture.path(), &link).unwrap();
    let settings = fixture.settings_at(link);
    let refused = open(settings);
    assert_matches!(refused, OpenError::InUse { .. });
}

#[tokio::test]
async fn so_is_whoever_comes_by_a_link_to_a_file_that_was_not_there() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.path().join("real.db"), &link).unwrap();
    let settings = fixture.settings_at(link);
    let _first = Sqlite::open(settings.clone()).unwrap();
    let refused = open(settings);
    assert_matches!(refused, OpenError::InUse { .. });
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_name() {
    let newer = "INSERT INTO hapax_migration VALUES ('hapax', 99, 'later', 'x', 0)";
    check_refused(newer, |error| {
        error.to_string().contains("run a newer version")
            && matches!(error, SchemaError::Newer { found: 99, .. })
    })
    .await;
}

#[tokio::test]
async fn a_changed_migration_is_refused_by_name() {
    let changed = "UPDATE hapax_migration SET checksum = 'x' WHERE namespace = 'hapax'";
    check_refused(changed, |error| {
        matches!(error, SchemaError::Changed { version: 1, .. })
    })
    .await;
}

#[tokio::test]
async fn a_table_that_was_changed_by_hand_is_refused_by_name() {
    let named = |object: &'static str| move |error: &SchemaError| matches!(error, SchemaError::Damaged { object: found } if found == object);
    let altered = "ALTER TABLE hapax_outbox_event ADD COLUMN extra TEXT";
    check_refused(altered, named("table hapax_outbox_event")).await;
    let dropped = "DROP INDEX hapax_delivery_due";
    check_refused(dropped, named("index hapax_delivery_due")).await;
}

#[tokio::test]
async fn a_foreign_table_of_our_name_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let other = fixture.directory.path().join("other.db");
    let sql = "CREATE TABLE hapax_outbox_event (x)";
    Connection::open(&other)
        .unwrap()
        .execute_batch(sql)
        .unwrap();
    let settings = fixture.settings_at(other);
    let refused = open(settings);
    let OpenError::Schema {
        source: SchemaError::Foreign { object },
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(object, "table hapax_outbox_event");
}

#[tokio::test]
async fn a_database_of_others_keeps_its_tables() {
    let fixture = Fixture::new().await;
    let other = fixture.directory.path().join("other.db");
    let sql = "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (7)";
    Connection::open(&other)
        .unwrap()
        .execute_batch(sql)
        .unwrap();
    let settings = fixture.settings_at(other);
    let store = Sqlite::open(settings).unwrap();
    let read = |conn: &Connection| conn.query_row("SELECT x FROM theirs", [], |row| row.get(0));
    assert_eq!(store.read::<i64>(read).await.unwrap(), 7);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings_at(fixture.directory.path().join("letter.txt"));
    std::fs::write(&settings.path, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let refused = open(settings);
    assert_matches!(refused, OpenError::Corrupt { .. });
}

#[tokio::test]
async fn a_torn_database_is_refused_by_name() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let mut bytes = std::fs::read(fixture.path()).unwrap();
    bytes[100..4096].fill(0xff);
    std::fs::write(fixture.path(), bytes).unwrap();
    let refused = open(fixture.settings());
    assert_matches!(refused, OpenError::Corrupt { .. });
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings_at(fixture.directory.path().join("nowhere/shop.db"));
    let refused = open(settings);
    assert_matches!(refused, OpenError::Unavailable { .. });
    let said = refused.to_string();
    assert!(said.contains("its disk has room"), "{said}");
}

#[tokio::test]
async fn a_services_migrations_follow_the_same_rules() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let more = "ALTER TABLE note ADD COLUMN more TEXT";
    let both = [(1, "note", NOTES), (2, "more", more)];
    store.migrate("test", &both).await.unwrap();
    store
        .migrate("test", &both)
        .await
        .expect("applied migrations are skipped");
    let older = store.migrate("test", &both[..1]).await;
    assert_matches!(
        older,
        Err(SchemaError::Newer {
            found: 2,
            known: 1,
            ..
        })
    );
    let changed = store.migrate("test", &[(1, "note", more), both[1]]).await;
    assert_matches!(changed, Err(SchemaError::Changed { version: 1, .. }));
    let gap = store.migrate("gap", &[(2, "note", NOTES)]).await;
    assert_matches!(gap, Err(SchemaError::Malformed { .. }));
    let own = store.migrate("hapax", &[]).await;
    assert_matches!(own, Err(SchemaError::Malformed { .. }));
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_of_its_plan() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let plan = [
        (1, "good", "CREATE TABLE good (x)"),
        (2, "bad", "CREATE TABLE bad (x); NONSENSE"),
    ];
    let failed = store.migrate("plan", &plan).await;
    assert_matches!(failed, Err(SchemaError::Failed { version: 2, .. }));
    let count = |conn: &Connection| {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name IN ('good', 'bad')";
        conn.query_row(sql, [], |row| row.get(0))
    };
    assert_eq!(store.read::<i64>(count).await.unwrap(), 0);
    store
        .migrate("plan", &plan[..1])
        .await
        .expect("the good migration can be applied");
}

#[tokio::test]
async fn a_migration_that_ends_its_transaction_is_refused() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let bad = store
        .migrate("bad", &[(1, "bad", "CREATE TABLE bad (x); COMMIT")])
        .await;
    assert_matches!(bad, Err(SchemaError::Failed { .. }));
    store.write(|_| Ok(())).await.unwrap();
}

/// Further writes to such a file would be lost.
#[tokio::test]
async fn a_file_that_was_replaced_or_deleted_is_written_to_no_more() {
    for is_replaced in [true, false] {
        let fixture = Fixture::new().await;
        fixture.store.write(|_| Ok(())).await.unwrap();
        let copy = fixture.directory.path().join("copy.db");
        crate::conformance::image(&fixture.path(), &copy);
        if is_replaced {
            std::fs::rename(&copy, fixture.path()).unwrap();
        } else {
            std::fs::remove_file(fixture.path()).unwrap();
        }
        let insert = "INSERT INTO note (text) VALUES ('lost')";
        let refused = fixture.store.write(move |conn| conn.execute(insert, []));
        let refused = refused.await.unwrap_err().error_chain();
        assert!(refused.contains("replaced or deleted"), "{refused}");
        fixture.store.close().await.unwrap();
        if is_replaced {
            let store = Sqlite::open(fixture.settings()).unwrap();
            let count = "SELECT count(*) FROM note";
            let count = store.read(|conn| conn.query_row(count, [], |row| row.get::<_, i64>(0)));
            assert_eq!(count.await.unwrap(), 0);
        }
    }
}
