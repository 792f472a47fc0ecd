//! An operator's process is killed before any of its statements, and before and after its commit:
//! the operation has happened as a whole, or not at all.
//!
//! The test starts itself as the operator. The clock stands still, so a database after an operation
//! has one possible content.

use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use hapax::{
    admin::{
        DeliveryAdmin as _, DestinationAdmin as _, EventFilter, JobAdmin as _, JobOptions, JobStep,
        KeyAdmin as _,
    },
    failpoint::Failpoints,
    store::Transaction as _,
};
use hapax_sqlite::{Settings, Sqlite, SqliteAdmin};
use hapax_testkit::clock::{ManualClock, seeded_random};

use super::scene::{dump, emit, ops, pass};
use crate::fixture::{Fixture, this_test, variable};

const SPEC: &str = r#"{"sink":{"file":{"path":"/tmp/orders"}}}"#;
const NAME: &str =
    "admin::crash::an_operation_of_a_killed_process_has_happened_as_a_whole_or_not_at_all";
const OPERATIONS: [&str; 13] = [
    "pause",
    "create",
    "change",
    "remove",
    "replay",
    "edit",
    "discard",
    "start",
    "cancel",
    "replay_batch",
    "offer_batch",
    "forget_batch",
    "purge",
];

#[tokio::test]
async fn an_operation_of_a_killed_process_has_happened_as_a_whole_or_not_at_all() {
    if let Some(operation) = variable("HAPAX_TEST_OPERATION") {
        return act_and_die(&operation).await;
    }
    for operation in OPERATIONS {
        check_kills(operation).await;
    }
}

async fn check_kills(operation: &'static str) {
    let fixture = prepared(operation).await;
    let folder = fixture.directory.path();
    let before = dump(&fixture.path());
    let mut killed = Vec::new();
    let copy = folder.join("copy.db");
    let after = loop {
        remove_files(&copy);
        std::fs::copy(fixture.path(), &copy).unwrap();
        let survived = run(operation, &copy, killed.len() + 1);
        let content = dump(&copy);
        if survived {
            break content;
        }
        // The operation can be tried again, and the service can write.
        if content == before {
            let admin = SqliteAdmin::open(settings(&copy, Failpoints::none())).unwrap();
            act(&admin, operation).await;
            admin.close().await;
        }
        let store = Sqlite::open(settings(&copy, Failpoints::none())).unwrap();
        emit(&store, 1).await;
        store.close().await.unwrap();
        killed.push(content);
    };
    assert!(
        killed.len() >= 3,
        "{operation}: only {} places",
        killed.len()
    );
    assert_ne!(before, after, "{operation}");
    // Only the last place is after the commit.
    let committed = killed.pop().unwrap();
    assert_eq!(committed, after, "{operation}, killed after its commit");
    for (place, content) in killed.iter().enumerate() {
        assert_eq!(content, &before, "{operation}, killed at place {place}");
    }
}

/// Runs an operation in another process, which is killed at a place. Returns whether it survived,
/// because there are fewer places.
fn run(operation: &str, path: &Path, place: usize) -> bool {
    let ran = this_test(NAME)
        .env("HAPAX_TEST_OPERATION", operation)
        .env("HAPAX_TEST_PATH", path)
        .env("HAPAX_TEST_PLACE", place.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    let was_killed = ran.status.signal() == Some(9);
    assert!(
        was_killed || ran.status.success(),
        "{operation}: {said} {errors}"
    );
    !was_killed
}

/// The operator: dies at a place.
async fn act_and_die(operation: &str) {
    let path = variable("HAPAX_TEST_PATH").unwrap();
    let place: usize = variable("HAPAX_TEST_PLACE").unwrap().parse().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let strike = move |name: &str| {
        if name.starts_with("sqlite.admin.") && passed.fetch_add(1, Ordering::SeqCst) + 1 == place {
            let this = std::process::id().to_string();
            Command::new("kill")
                .args(["-s", "KILL", &this])
                .status()
                .unwrap();
            unreachable!("the process was killed");
        }
    };
    let settings = settings(Path::new(&path), Failpoints::calling(strike));
    let admin = SqliteAdmin::open(settings).unwrap();
    act(&admin, operation).await;
    admin.close().await;
}

fn settings(path: &Path, failpoints: Failpoints) -> Settings {
    let clock = ManualClock::new();
    // Later than the jobs that are prepared.
    clock.advance(std::time::Duration::from_mins(1));
    let mut settings = Settings::new(path, clock.clock(), seeded_random(5));
    settings.failpoints = failpoints;
    settings
}

async fn prepared(operation: &str) -> Fixture {
    let fixture = Fixture::new().await;
    emit(&fixture.store, 8).await;
    pass(&fixture.store, "orders", 8, &[2, 4, 6]).await;
    let mut tx = fixture.claim("k1").await;
    tx.with(|rows| rows.execute(crate::fixture::INSERT, ["k1"]))
        .await
        .unwrap();
    tx.complete(&crate::fixture::response(), hapax::store::Effect::Keep)
        .await
        .unwrap();
    let admin = fixture.store.admin().unwrap();
    admin
        .create_destination(ops(), "declared", SPEC, None)
        .await
        .unwrap();
    let (filter, options) = (EventFilter::default(), JobOptions::default());
    match operation {
        "replay_batch" | "cancel" => {
            let job = admin.start_dead_letter_job(ops(), "orders", &filter, None, &options);
            job.await.unwrap();
        }
        "offer_batch" => {
            let job = admin.start_event_job(ops(), "orders", &filter, None, &options);
            job.await.unwrap();
        }
        "forget_batch" => {
            admin.remove_destination(ops(), "orders").await.unwrap();
        }
        _ => {}
    }
    admin.close().await;
    fixture.store.close().await.unwrap();
    fixture
}

async fn act(admin: &SqliteAdmin, operation: &str) {
    let (filter, options) = (EventFilter::default(), JobOptions::default());
    match operation {
        "pause" => assert!(admin.pause_destination(ops(), "orders").await.unwrap()),
        "create" => drop(
            admin
                .create_destination(ops(), "new", SPEC, None)
                .await
                .unwrap(),
        ),
        "change" => {
            let changed =
                admin.change_destination(ops(), "declared", 1, SPEC, Some(b"sealed".as_slice()));
            changed.await.unwrap();
        }
        "remove" => drop(admin.remove_destination(ops(), "orders").await.unwrap()),
        "replay" => admin.replay_dead_letter(ops(), "orders", 4).await.unwrap(),
        "edit" => {
            let edited = admin.edit_dead_letter(ops(), "orders", 4, r#"{"number":7}"#);
            edited.await.unwrap();
        }
        "discard" => {
            let discarded = admin.discard_dead_letter(ops(), "orders", 4, "paid in cash");
            discarded.await.unwrap();
        }
        "start" => {
            let job = admin.start_dead_letter_job(ops(), "orders", &filter, Some("old"), &options);
            job.await.unwrap();
        }
        "cancel" => admin.cancel_job(ops(), 1).await.unwrap(),
        "replay_batch" | "offer_batch" | "forget_batch" => {
            let ran = admin.run_job().await.unwrap();
            assert!(matches!(ran, JobStep::Batch { done: 1.., .. }), "{ran:?}");
        }
        "purge" => {
            let key = admin.key(ops(), None, "POST /notes", "k1").await.unwrap();
            let purged = admin.purge_key(ops(), None, "POST /notes", "k1", &key.version, "wrong");
            purged.await.unwrap();
        }
        other => panic!("{other}"),
    }
}

fn remove_files(path: &Path) {
    for ending in ["", "-wal", "-shm", ".lock"] {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        let _missing = std::fs::remove_file(file);
    }
}
