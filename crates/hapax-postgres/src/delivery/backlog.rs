//! The backlogs of partitions, read in one statement and one snapshot.

use hapax::{
    delivery::{Backlog, CheckpointId},
    store::StoreError,
};
use tokio_postgres::Row;

use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// Events that a backlog is counted by; beyond it, it is what is known of the outbox.
const COUNTED: i64 = 1_000;
/// Deliveries that are counted one by one; where more wait, this many are reported.
const PARKED_COUNTED: i64 = 100_000;

/// Reads the backlog of each partition.
pub(super) async fn read(
    store: &Postgres,
    partitions: &[String],
) -> Result<Vec<(String, Backlog)>, StoreError> {
    let now = store.now();
    let params: [&dyn Param; 4] = [&partitions, &COUNTED, &PARKED_COUNTED, &now];
    let found = store.ask(query!("delivery/backlog"), &params).await?;
    let named = |row: &Row| (row.get::<_, String>(0), backlog(row));
    Ok(found.iter().map(named).collect())
}

fn backlog(row: &Row) -> Backlog {
    let (beyond, parked, dead): (i64, i64, i64) =
        (row.get("beyond"), row.get("parked"), row.get("dead"));
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Backlog {
        events: (beyond.max(0) + parked).unsigned_abs(),
        parked: parked.unsigned_abs(),
        dead: dead.unsigned_abs(),
        oldest_at: moment("oldest_parked")
            .into_iter()
            .chain(moment("oldest_beyond"))
            .min(),
        newest: row
            .get::<_, Option<i64>>("checkpoint_epoch")
            .zip(row.get("checkpoint_settlement"))
            .map(|(epoch, settlement)| CheckpointId {
                epoch,
                settlement,
                high: row.get("frontier"),
            }),
    }
}
