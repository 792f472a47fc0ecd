//! Checks every query file on a fresh database.

use std::{collections::HashSet, fs, path::Path};

use hapax_sqlite::{
    Sqlite,
    rusqlite::{Connection, params_from_iter, types::Value},
};

use crate::fixture::Fixture;

#[tokio::test]
async fn every_query_file_prepares_and_says_why_it_is_there() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let conn = Connection::open(fixture.path()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
    let mut count = 0;
    for noun in fs::read_dir(folder).unwrap() {
        for file in fs::read_dir(noun.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let sql = fs::read_to_string(&path).unwrap();
            assert!(
                sql.starts_with("-- "),
                "{path:?} does not start with a comment that gives its reason"
            );
            let lines = sql.lines().filter(|line| !line.starts_with("--"));
            let statement = lines.collect::<Vec<_>>().join("\n");
            assert!(
                !statement.contains(';'),
                "{path:?} holds more than one statement"
            );
            assert!(
                !sql.contains('*') || sql.contains("count(*)"),
                "{path:?} uses `*` instead of column names"
            );
            let prepared = conn.prepare(&sql);
            let prepared = prepared.unwrap_or_else(|error| panic!("{path:?}: {error}"));
            // Rows are read by column name, and a name that occurs twice reads the first column.
            let mut seen = HashSet::new();
            for (index, name) in prepared.column_names().enumerate() {
                let is_new = seen.insert(name.to_owned());
                assert!(index < 2 || is_new, "{path:?}: column {index}, {name:?}");
            }
            count += 1;
        }
    }
    assert!(count > 30, "only {count} files were found");
}

#[tokio::test]
async fn the_hot_queries_go_by_an_index() {
    let fixture = Fixture::new().await;
    for sql in [
        include_str!("../../queries/idempotency/find.sql"),
        include_str!("../../queries/idempotency/expired.sql"),
        include_str!("../../queries/idempotency/advance.sql"),
        include_str!("../../queries/idempotency/take_over.sql"),
        include_str!("../../queries/delivery/due.sql"),
        include_str!("../../queries/delivery/next_due.sql"),
        include_str!("../../queries/delivery/begun.sql"),
        include_str!("../../queries/delivery/blocked_keys.sql"),
        include_str!("../../queries/delivery/is_held.sql"),
        include_str!("../../queries/delivery/unblock.sql"),
        include_str!("../../queries/delivery/release.sql"),
        include_str!("../../queries/delivery/count_parked.sql"),
        include_str!("../../queries/delivery/oldest_parked.sql"),
        include_str!("../../queries/delivery/count_dead.sql"),
        include_str!("../../queries/delivery/purge.sql"),
        include_str!("../../queries/delivery/purge_attempts.sql"),
        include_str!("../../queries/delivery/purge_arrivals.sql"),
        include_str!("../../queries/delivery/arrivals.sql"),
        include_str!("../../queries/delivery/is_free.sql"),
        include_str!("../../queries/inbox/processed.sql"),
        include_str!("../../queries/inbox/purge.sql"),
        include_str!("../../queries/outbox/is_needed.sql"),
        include_str!("../../queries/poll/find.sql"),
        include_str!("../../queries/poll/find_by_token.sql"),
        include_str!("../../queries/delivery/operator_settings.sql"),
        include_str!("../../queries/admin/changes.sql"),
        include_str!("../../queries/admin/newest.sql"),
        include_str!("../../queries/admin/newest_dead.sql"),
        include_str!("../../queries/admin/newest_parked.sql"),
        include_str!("../../queries/admin/delivery_of.sql"),
        include_str!("../../queries/admin/dead_beyond.sql"),
        include_str!("../../queries/admin/events_beyond.sql"),
        include_str!("../../queries/admin/forget_deliveries.sql"),
        include_str!("../../queries/admin/purge_key.sql"),
    ] {
        check_plan(&fixture.store, sql).await;
    }
}

/// The tables of which there are few rows, and what a query visits only up to a bound.
const SHORT: [&str; 17] = [
    "CONSTANT",
    "hapax_checkpoint",
    "hapax_death",
    "hapax_destination",
    "hapax_node",
    "opened",
    "asking",
    "claimed",
    "due",
    "found",
    "given_up",
    "known",
    "last",
    "looked",
    "unfinished",
    "waiting",
    "asked",
];

/// Scans that end early: the caller or a limit stops them, or the index contains few rows.
const BOUNDED: [(&str, &str); 4] = [
    ("hold_job", "SCAN hapax_job USING INDEX hapax_job_open"),
    (
        "keys_in_progress",
        "SCAN hapax_idempotency_key USING INDEX hapax_idempotency_key_lapses",
    ),
    (
        "keys_stored",
        "SCAN hapax_idempotency_key USING COVERING INDEX hapax_idempotency_key_created",
    ),
    ("tried", "SCAN hapax_attempt"),
];

/// Queries that sort some rows, of which there is a bounded number.
const SORTED: [&str; 9] = [
    "claimed",
    "declined",
    "find_event_near",
    "inbox_of",
    "living",
    "sagas_asking",
    "sagas_of",
    "sagas_waiting",
    "tried",
];

#[tokio::test]
async fn the_queries_of_operators_scan_no_large_table() {
    let fixture = Fixture::new().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries/admin");
    let mut unexpected = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for step in plan(&fixture.store, fs::read_to_string(&path).unwrap()).await {
            let scanned = step.strip_prefix("SCAN ");
            let scanned = scanned.and_then(|it| it.split_whitespace().next());
            let is_short = |it: &str| SHORT.contains(&it) || it.starts_with('(');
            let is_bounded = BOUNDED.contains(&(name.as_str(), step.as_str()));
            let is_sorted = SORTED.contains(&name.as_str());
            let sorts = step.contains("TEMP B-TREE") && !is_sorted;
            let scans = scanned.is_some_and(|it| !is_short(it)) && !is_bounded;
            if sorts || scans || step.contains("AUTOMATIC") {
                unexpected.push(format!("{name}: {step}"));
            }
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

async fn check_plan(store: &Sqlite, sql: &'static str) {
    let plan = plan(store, sql.to_owned()).await;
    let scans: Vec<_> = plan
        .iter()
        .filter(|step| step.starts_with("SCAN hapax") || step.contains("TEMP B-TREE"))
        .collect();
    assert!(scans.is_empty(), "{sql}: {plan:#?}");
}

/// The steps in which SQLite executes the statement of a query file.
async fn plan(store: &Sqlite, sql: String) -> Vec<String> {
    let explain = move |conn: &Connection| {
        let sql = format!("EXPLAIN QUERY PLAN {}", sql.split_once('\n').unwrap().1);
        let mut plan = conn.prepare(&sql)?;
        let parameters = plan.parameter_count();
        let nulls = vec![Value::Null; parameters];
        let steps = plan.query_map(params_from_iter(nulls), |row| row.get::<_, String>(3))?;
        steps.collect::<Result<Vec<_>, _>>()
    };
    store.write(explain).await.unwrap()
}
