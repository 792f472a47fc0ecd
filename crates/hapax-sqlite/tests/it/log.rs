//! The write-ahead log: its length under load, with readers and without, and kills while it is
//! merged.
//!
//! The log grows by a page of 4 KiB for each page that a commit changes. The tests write much in few
//! commits, and do not depend on how fast the merging thread is.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use hapax::failpoint::Failpoints;
use hapax_sqlite::{
    Sqlite,
    rusqlite::{self, Connection},
};
use hapax_testkit::clock::ManualClock;

use crate::fixture::{Fixture, INSERT, settings, this_test, variable};

const MIB: u64 = 1024 * 1024;
/// The size to which the store truncates the file of the log.
const LOG_BYTES: u64 = 64 * MIB;
/// A little more than the limit of the log, for the commits that reach it.
const LOG_BYTES_MAX: u64 = 68 * MIB;
/// The same if the writer merges the log in its commits, after 4,000 pages.
const LOG_BYTES_IN_COMMIT: u64 = 20 * MIB;
const BLOBS: &str = "CREATE TABLE blob (bytes BLOB NOT NULL)";
const BLOB: &str = "INSERT INTO blob (bytes) VALUES (zeroblob(?1))";
const KILLED: &str = "log::what_was_acknowledged_survives_a_kill_while_the_log_is_merged";

async fn with_blobs(failpoints: Failpoints) -> Fixture {
    let fixture = Fixture::with(|settings| settings.failpoints = failpoints).await;
    make_blobs(&fixture).await;
    fixture
}

async fn make_blobs(fixture: &Fixture) {
    let migrations = [(1, "blob", BLOBS)];
    fixture.store.migrate("blob", &migrations).await.unwrap();
}

async fn insert(fixture: &Fixture, bytes: u64) {
    let insert = move |conn: &Connection| conn.execute(BLOB, [i64::try_from(bytes).unwrap()]);
    fixture.store.write(insert).await.unwrap();
}

fn count(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row("SELECT count(*) FROM blob", [], |row| row.get(0))
}

fn log_file(fixture: &Fixture) -> PathBuf {
    fixture.directory.path().join("test.db-wal")
}

fn log_bytes(fixture: &Fixture) -> u64 {
    fs::metadata(log_file(fixture)).map_or(0, |about| about.len())
}

/// Earlier versions can damage a database whose log starts again while another connection merges it.
#[test]
fn this_version_of_sqlite_merges_the_log_safely_beside_a_writer() {
    assert!(rusqlite::version_number() >= 3_051_003);
}

/// Writes more than the limit of the log.
async fn check_bounded(fixture: &Fixture, most: u64) {
    for _ in 0..110 {
        insert(fixture, MIB).await;
        let bytes = log_bytes(fixture);
        assert!(bytes <= most, "the log has {bytes} bytes");
    }
    assert_eq!(fixture.store.read(count).await.unwrap(), 110);
}

#[tokio::test]
async fn the_log_has_a_bound_under_load() {
    let fixture = with_blobs(Failpoints::none()).await;
    check_bounded(&fixture, LOG_BYTES_MAX).await;
}

#[tokio::test]
async fn without_the_thread_a_commit_merges_the_log() {
    let failpoints = Failpoints::calling(|name| {
        assert!(!name.starts_with("sqlite.merge."), "there is no thread");
    });
    let fixture = Fixture::with(|settings| {
        settings.failpoints = failpoints;
        settings.merges_beside = false;
    })
    .await;
    make_blobs(&fixture).await;
    check_bounded(&fixture, LOG_BYTES_IN_COMMIT).await;
}

#[tokio::test]
async fn the_log_has_a_bound_even_if_the_thread_that_merges_it_fails() {
    let failpoints = Failpoints::calling(|name| {
        assert!(name != "sqlite.merge.before", "on purpose");
    });
    let fixture = with_blobs(failpoints).await;
    check_bounded(&fixture, LOG_BYTES_MAX).await;
}

#[tokio::test]
async fn a_panic_while_the_writer_merges_does_not_end_the_writer() {
    let failpoints = Failpoints::calling(|name| {
        assert!(!name.starts_with("sqlite.merge."), "on purpose");
    });
    let fixture = with_blobs(failpoints).await;
    for _ in 0..40 {
        insert(&fixture, MIB).await;
    }
    assert!(log_bytes(&fixture) > 40 * MIB, "nothing merges the log");
    assert_eq!(fixture.store.read(count).await.unwrap(), 40);
    fixture.store.close().await.unwrap();
    assert!(!log_file(&fixture).exists());
}

/// An operator's connection, a backup or `sqlite3` merges the log as well, at any time.
#[tokio::test]
async fn another_program_that_merges_the_log_meanwhile_does_no_harm() {
    let fixture = with_blobs(Failpoints::none()).await;
    let (path, is_done) = (fixture.path(), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&is_done);
    let other = thread::spawn(move || {
        let conn = Connection::open(path).unwrap();
        let modes = ["PASSIVE", "RESTART", "PASSIVE", "TRUNCATE"];
        for mode in modes.into_iter().cycle() {
            if until.load(Ordering::SeqCst) {
                break;
            }
            let merge = format!("PRAGMA wal_checkpoint({mode})");
            conn.query_row(&merge, [], |_| Ok(())).unwrap();
        }
    });
    for _ in 0..60 {
        insert(&fixture, MIB).await;
    }
    is_done.store(true, Ordering::SeqCst);
    other.join().unwrap();
    let integrity = |conn: &Connection| {
        conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    };
    assert_eq!(fixture.store.read(count).await.unwrap(), 60);
    assert_eq!(fixture.store.read(integrity).await.unwrap(), "ok");
}

#[tokio::test]
async fn the_log_grows_while_a_reader_stays_and_is_truncated_afterwards() {
    let fixture = with_blobs(Failpoints::none()).await;
    insert(&fixture, MIB).await;
    let reader = Connection::open(fixture.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader).unwrap(), 1);
    for _ in 0..80 {
        insert(&fixture, MIB).await;
    }
    assert!(
        log_bytes(&fixture) > LOG_BYTES,
        "the reader needs the database as it was"
    );
    assert_eq!(count(&reader).unwrap(), 1);
    reader.execute_batch("COMMIT").unwrap();
    while log_bytes(&fixture) > LOG_BYTES {
        insert(&fixture, MIB / 16).await;
    }
    assert!(fixture.store.read(count).await.unwrap() > 81);
}

/// The last connection to a database deletes its log. This is the writer's, or another store could
/// open the file while the thread still merges.
#[tokio::test]
async fn the_thread_that_merges_the_log_ends_before_the_store_releases_its_file() {
    let fixture = with_blobs(Failpoints::none()).await;
    insert(&fixture, 20 * MIB).await;
    insert(&fixture, 1).await;
    assert!(log_bytes(&fixture) > 0);
    fixture.store.close().await.unwrap();
    assert!(!log_file(&fixture).exists());
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_while_the_log_is_merged() {
    if let Some(place) = variable("HAPAX_TEST_PLACE") {
        return write_and_die(&place).await;
    }
    for place in ["before", "during", "after"] {
        // The log starts again between the first passes and the later ones.
        for pass in [1, 2, 5, 20] {
            check_kill(place, pass).await;
        }
    }
    for place in ["finish.before", "finish.during", "finish.after"] {
        for pass in [1, 3] {
            check_kill(place, pass).await;
        }
    }
}

async fn check_kill(place: &str, pass: usize) {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let acknowledged = fixture.directory.path().join("acknowledged");
    let ran = this_test(KILLED)
        .env("HAPAX_TEST_PLACE", place)
        .env("HAPAX_TEST_PASS", pass.to_string())
        .env("HAPAX_TEST_PATH", fixture.path())
        .env("HAPAX_TEST_ACKNOWLEDGED", &acknowledged)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.signal(), Some(9), "{place} {pass}: {errors}");
    let acknowledged = fs::read_to_string(acknowledged).unwrap();
    let acknowledged: Vec<String> = acknowledged.lines().map(str::to_owned).collect();
    assert!(!acknowledged.is_empty(), "{place} {pass}");
    let store = Sqlite::open(fixture.settings()).unwrap();
    let read = |conn: &Connection| {
        let mut notes = conn.prepare("SELECT substr(text, 1, 8) FROM note ORDER BY text")?;
        let notes: Result<Vec<String>, _> = notes.query_map([], |row| row.get(0))?.collect();
        let sound = conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
        Ok((notes?, sound))
    };
    let (notes, sound) = store.read(read).await.unwrap();
    assert_eq!(sound, "ok", "{place} {pass}");
    // The note that was being written may be there too.
    assert!(
        notes.starts_with(&acknowledged) && notes.len() <= acknowledged.len() + 1,
        "{place} {pass}: {} acknowledged, {} stored",
        acknowledged.len(),
        notes.len()
    );
    store.close().await.unwrap();
}

/// The service: writes until it dies while its log is merged.
async fn write_and_die(place: &str) {
    let at = match place {
        "before" | "during" => "sqlite.merge.before",
        "after" => "sqlite.merge.after",
        "finish.before" | "finish.during" => "sqlite.merge.finish.before",
        _ => "sqlite.merge.finish.after",
    };
    // During: the merge goes on until the signal arrives.
    let waits = !place.ends_with("during");
    // The thread fails, so the writer merges.
    let fails = place.starts_with("finish");
    let pass: usize = variable("HAPAX_TEST_PASS").unwrap().parse().unwrap();
    let passed = AtomicUsize::new(0);
    let strike = move |name: &str| {
        assert!(!fails || name != "sqlite.merge.before", "on purpose");
        if name == at && passed.fetch_add(1, Ordering::SeqCst) + 1 == pass {
            let killer = thread::spawn(kill_this);
            if waits {
                killer.join().unwrap();
                unreachable!("the process was killed");
            }
        }
    };
    let path = PathBuf::from(variable("HAPAX_TEST_PATH").unwrap());
    let mut settings = settings(path, &ManualClock::new());
    settings.failpoints = Failpoints::calling(strike);
    let store = Sqlite::open(settings).unwrap();
    let acknowledged = variable("HAPAX_TEST_ACKNOWLEDGED").unwrap();
    let mut acknowledged = OpenOptions::new()
        .create(true)
        .append(true)
        .open(acknowledged)
        .unwrap();
    for number in 0_u32.. {
        let number = format!("{number:08}");
        let text = format!("{number}{}", "x".repeat(64 * 1024));
        let insert = move |conn: &Connection| conn.execute(INSERT, [text]);
        store.write(insert).await.unwrap();
        writeln!(acknowledged, "{number}").unwrap();
    }
}

fn kill_this() {
    let this = std::process::id().to_string();
    let kill = Command::new("kill").args(["-s", "KILL", &this]).status();
    kill.unwrap();
}
