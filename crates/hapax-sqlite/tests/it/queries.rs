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
        include_str!("../../queries/delivery/count_dead.sql"),
        include_str!("../../queries/delivery/purge.sql"),
        include_str!("../../queries/delivery/purge_attempts.sql"),
        include_str!("../../queries/delivery/purge_arrivals.sql"),
        include_str!("../../queries/delivery/arrivals.sql"),
        include_str!("../../queries/delivery/is_free.sql"),
        include_str!("../../queries/inbox/purge.sql"),
        include_str!("../../queries/outbox/is_needed.sql"),
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

async fn check_plan(store: &Sqlite, sql: &'static str) {
    let explain = move |conn: &Connection| {
        let sql = format!("EXPLAIN QUERY PLAN {}", sql.split_once('\n').unwrap().1);
        let mut plan = conn.prepare(&sql)?;
        let parameters = plan.parameter_count();
        let nulls = vec![Value::Null; parameters];
        let steps = plan.query_map(params_from_iter(nulls), |row| row.get::<_, String>(3))?;
        steps.collect::<Result<Vec<_>, _>>()
    };
    let plan = store.write(explain).await.unwrap();
    let scans: Vec<_> = plan
        .iter()
        .filter(|step| step.starts_with("SCAN hapax") || step.contains("TEMP B-TREE"))
        .collect();
    assert!(scans.is_empty(), "{sql}: {plan:#?}");
}
