//! Tests of the merger without a store: the end of its thread, waiting for it, and flushes that fail.

use hapax::{Clock, Random};

use super::*;
use crate::connection::{Guard, open_writer};

const NOTES: &str = "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('kept');";

fn failure(code: c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

#[test]
fn if_the_thread_ends_the_writer_merges() {
    let shared = Shared::default();
    assert_eq!(shared.committed(4_000), Step::Round);
    drop(RecordEnd(&shared));
    assert_eq!(shared.committed(8_000), Step::Finish);
}

#[test]
fn a_writer_that_waits_continues_after_a_pass() {
    let shared = Arc::<Shared>::default();
    assert_eq!(shared.committed(1_000), Step::Round);
    let waiting = Arc::clone(&shared);
    let writer = thread::spawn(move || waiting.committed(8_000));
    assert!(shared.next_round());
    shared.latest.store(8_000, Ordering::Relaxed);
    let pass = Pass {
        log: 7_900,
        merged: 7_900,
        is_busy: false,
    };
    assert!(shared.passed(0, pass), "the database is not flushed");
    assert_eq!(writer.join().unwrap(), Step::Nothing);
}

#[test]
fn a_writer_that_waits_continues_if_the_thread_ends() {
    let shared = Arc::<Shared>::default();
    assert_eq!(shared.committed(1_000), Step::Round);
    let waiting = Arc::clone(&shared);
    let writer = thread::spawn(move || waiting.committed(8_000));
    drop(RecordEnd(&shared));
    assert_eq!(writer.join().unwrap(), Step::Finish);
}

#[test]
fn a_panic_and_a_full_disk_fail_one_merge_and_a_flush_that_fails_ends_the_merging() {
    let shared = Shared::default();
    let panicked = shared.attempt(|| panic!("on purpose"));
    assert_eq!(panicked, Err("on purpose".to_owned()));
    let full = shared.attempt(|| Err(failure(ffi::SQLITE_FULL)));
    assert!(full.is_err() && !shared.is_stopped() && shared.flushes.check().is_ok());
    assert_eq!(shared.committed(1_000), Step::Round);
    let unflushed = shared.attempt(|| Err(failure(ffi::SQLITE_IOERR_FSYNC)));
    assert!(unflushed.is_err() && shared.is_stopped() && shared.flushes.check().is_err());
    assert_eq!(shared.committed(100_000), Step::Nothing);
}

#[test]
fn a_log_is_deleted_at_close_unless_it_must_be_kept() {
    for is_kept in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let settings = Settings::new(path, Clock::system(), Random::system());
        let mut writer = open_writer(&settings, &Guard::new()).unwrap();
        let merger = Merger::start(&mut writer, &settings).unwrap();
        writer.execute_batch(NOTES).unwrap();
        if is_kept {
            merger.shared.stop();
        }
        merger.close(&writer);
        drop(writer);
        let log = directory.path().join("test.db-wal");
        assert_eq!(log.exists(), is_kept);
        let writer = open_writer(&settings, &Guard::new()).unwrap();
        let read = writer.query_row("SELECT text FROM note", [], |row| row.get::<_, String>(0));
        assert_eq!(read.unwrap(), "kept");
    }
}
