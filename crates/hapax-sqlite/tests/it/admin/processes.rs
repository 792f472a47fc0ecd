//! An operator in one process, and a service that writes without a pause in another one.
//!
//! The test starts itself as the service.

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    admin::{
        DeliveryAdmin as _, DeliveryFilter, DestinationAdmin as _, EventFilter, JobAdmin as _,
        JobOptions, JobStep,
    },
    event::{Headers, NewEvent},
    store::{Keys as _, StoreError, Transaction as _},
};
use hapax_sqlite::{Settings, Sqlite, rusqlite::Connection};
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    program::Program,
    wait::eventually,
};
use tokio::task::JoinSet;

use super::scene::{beside, emit, number, ops, pass};
use crate::fixture::{Fixture, INSERT, this_test, variable};

const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 8;
const LETTERS: i64 = 700;

#[tokio::test(flavor = "multi_thread")]
async fn no_write_of_a_service_fails_and_no_reader_sees_half_of_an_operation() {
    if let Some(path) = variable("HAPAX_TEST_SERVICE") {
        return serve(&path).await;
    }
    let fixture = Fixture::new().await;
    emit(&fixture.store, 900).await;
    let dead: Vec<i64> = (1..=LETTERS).collect();
    pass(&fixture.store, "orders", 900, &dead).await;
    fixture.store.close().await.unwrap();

    let mut service = this_test(
        "admin::processes::no_write_of_a_service_fails_and_no_reader_sees_half_of_an_operation",
    );
    service
        .env("HAPAX_TEST_SERVICE", fixture.path())
        .stdin(Stdio::null());
    let file = |name: &str| fixture.directory.path().join(name);
    let mut service = Program::start(service, &file("service.log"));
    eventually(PATIENCE, async || {
        assert!(!service.has_ended(), "{}", service.log());
        file("serving").exists()
    })
    .await;

    let stop = Arc::new(AtomicBool::new(false));
    let watching = tokio::task::spawn_blocking({
        let (path, stop) = (fixture.path(), Arc::clone(&stop));
        move || watch(&Connection::open(path).unwrap(), &stop)
    });
    operate(&fixture).await;
    stop.store(true, Ordering::Relaxed);
    let watched = watching.await.unwrap();
    assert!(watched > 10, "only {watched} snapshots were read");

    std::fs::write(file("stop"), "").unwrap();
    let status = service.ended().await;
    assert!(status.success(), "{}", service.log());
    let report = std::fs::read_to_string(file("report")).unwrap();
    let (written, errors) = report.split_once('\n').unwrap();
    assert_eq!(errors, "");
    let written: i64 = written.parse().unwrap();
    assert!(written > 100, "{written}");
    assert_eq!(
        number(&fixture.path(), "SELECT count(*) FROM note"),
        written
    );
    let events = number(&fixture.path(), "SELECT count(*) FROM hapax_outbox_event");
    assert_eq!(events, 900 + written);
}

/// What operators do, for some seconds.
async fn operate(fixture: &Fixture) {
    let admin = beside(fixture);
    let filter = EventFilter::default();
    let options = JobOptions::default();
    let job = admin.start_dead_letter_job(ops(), "orders", &filter, None, &options);
    let job = job.await.unwrap();
    assert_eq!(job.total, Some(LETTERS.unsigned_abs()));
    let began = Instant::now();
    let (mut turns, mut done) = (0, 0);
    while began.elapsed() < Duration::from_secs(3) || done < LETTERS.unsigned_abs() {
        if let JobStep::Batch { done: batch, .. } = admin.run_job().await.unwrap() {
            done += batch;
        }
        if turns % 2 == 0 {
            assert!(admin.pause_destination(ops(), "orders").await.unwrap());
        } else {
            assert!(admin.resume_destination(ops(), "orders").await.unwrap());
        }
        let page = admin
            .deliveries(ops(), &DeliveryFilter::default(), None, 50)
            .await;
        assert_eq!(page.unwrap().items.len(), 50);
        turns += 1;
    }
    let path = fixture.path();
    assert_eq!(
        number(&path, "SELECT count(*) FROM hapax_audit_log"),
        2 + turns
    );
}

/// Reads snapshots until it is stopped: a batch and the progress of its job are one commit, and so
/// are an operation and its line in the audit log. Returns the number of snapshots.
fn watch(conn: &Connection, stop: &AtomicBool) -> u64 {
    const SNAPSHOT: &str = "SELECT
        (SELECT sum(done) FROM hapax_job),
        (SELECT count(*) FROM hapax_delivery WHERE manual = 1),
        (SELECT count(*) FROM hapax_audit_log WHERE action IN ('pause', 'resume')),
        (SELECT coalesce(max(version), 0) FROM hapax_declaration),
        (SELECT count(*) FROM note),
        (SELECT count(*) FROM hapax_outbox_event)";
    let mut snapshots = 0;
    while !stop.load(Ordering::Relaxed) {
        let (done, replayed, turns, version, notes, events): (
            Option<i64>,
            i64,
            i64,
            i64,
            i64,
            i64,
        ) = conn
            .query_row(SNAPSHOT, [], |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                ))
            })
            .unwrap();
        assert_eq!(done.unwrap_or(0), replayed);
        assert_eq!(turns, version);
        assert_eq!(900 + notes, events);
        snapshots += 1;
    }
    snapshots
}

/// The service: clients that write a row and an event each, until a file appears. It reports how
/// many writes succeeded, and the errors of the others.
async fn serve(path: &str) {
    let settings = Settings::new(path, system_clock(), seeded_random(7));
    let store = Sqlite::open(settings).unwrap();
    let file = |name: &str| Path::new(path).with_file_name(name);
    std::fs::write(file("serving"), "").unwrap();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (store, stop) = (store.clone(), file("stop"));
        clients.spawn(async move {
            let (mut written, mut errors) = (0_u64, String::new());
            while !stop.exists() {
                match write(&store, format!("{client}.{written}")).await {
                    Ok(()) => written += 1,
                    Err(error) => errors.push_str(&error.error_chain()),
                }
            }
            (written, errors)
        });
    }
    let (mut written, mut errors) = (0, String::new());
    while let Some(ended) = clients.join_next().await {
        let (more, failed) = ended.unwrap();
        written += more;
        errors.push_str(&failed);
    }
    store.close().await.unwrap();
    std::fs::write(file("report"), format!("{written}\n{errors}")).unwrap();
}

async fn write(store: &Sqlite, text: String) -> Result<(), StoreError> {
    let mut tx = store.begin(None, Headers::new()).await?;
    tx.with(move |rows| rows.execute(INSERT, [text])).await?;
    tx.emit(NewEvent::json("note.written", &1))?;
    tx.commit().await
}
