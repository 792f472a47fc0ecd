//! A store with a destination, events and dead letters, and an operator.

use std::{fmt::Write as _, path::Path, sync::LazyLock};

use hapax::{
    admin::{Actor, JobAdmin as _, JobStep},
    delivery::{Checkpoint, Frontier, Park, ParkedState, Settlement},
    event::{Headers, NewEvent},
    store::{Keys as _, Partitions as _, Settlements as _, Transaction as _},
};
use hapax_sqlite::{
    Sqlite, SqliteAdmin,
    rusqlite::{Connection, types::Value},
};

use crate::fixture::Fixture;

/// The operator.
pub(crate) fn ops() -> &'static Actor {
    static OPS: LazyLock<Actor> = LazyLock::new(|| Actor::new("ops"));
    &OPS
}

/// Emits `count` events, each about another order.
pub(crate) async fn emit(store: &Sqlite, count: usize) {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    for number in 0..count {
        let order = NewEvent::json("order.created", &serde_json::json!({"number": number}));
        tx.emit(order.about("order", number.to_string())).unwrap();
    }
    tx.commit().await.unwrap();
}

/// Opens a destination, settles all events up to `high`, and makes those in `dead` dead letters.
pub(crate) async fn pass(store: &Sqlite, destination: &str, high: i64, dead: &[i64]) {
    let opened = store.open(destination).await.unwrap();
    let park = |position: &i64| Park {
        position: *position,
        state: ParkedState::Dead,
        attempt: 3,
        next_at: hapax::Timestamp::from_millis(0),
        order_key: Some(format!("order\n{position}")),
        last_error: Some(format!("connection Refused by host {position}")),
    };
    let frontier = Frontier {
        high,
        snapshot: None,
    };
    let settlement = Settlement {
        destination: destination.to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier,
            ..Checkpoint::default()
        }),
        park: dead.iter().map(park).collect(),
        ..Settlement::default()
    };
    store.settle(settlement).await.unwrap();
}

/// The handle of another process.
pub(crate) fn beside(fixture: &Fixture) -> SqliteAdmin {
    SqliteAdmin::open(fixture.settings()).unwrap()
}

/// Runs jobs until none is due. Returns the number of batches.
pub(crate) async fn work(admin: &SqliteAdmin) -> usize {
    let mut batches = 0;
    while admin.run_job().await.unwrap() != JobStep::Nothing {
        batches += 1;
        assert!(batches < 1_000, "a job does not end");
    }
    batches
}

/// Everything in the store's tables, as text.
pub(crate) fn dump(path: &Path) -> String {
    let conn = Connection::open(path).unwrap();
    let sql = r"SELECT name FROM sqlite_schema
        WHERE type = 'table' AND name LIKE 'hapax\_%' ESCAPE '\' ORDER BY name";
    let mut tables = conn.prepare(sql).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut text = String::new();
    for table in tables.map(Result::unwrap) {
        let mut rows = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let count = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<Value> = (0..count).map(|at| row.get(at).unwrap()).collect();
            writeln!(text, "{table} {values:?}").unwrap();
        }
    }
    text
}

/// A number from the database at `path`, read by another program.
pub(crate) fn number(path: &Path, sql: &str) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}
