//! Where a destination starts: a frontier that is recorded once, before its first partition is
//! opened. The statement decides about it in one snapshot; see `delivery/record_start`.

use hapax::{Timestamp, delivery::Start, store::StoreError};

use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// Records where a destination starts. Returns false if it is not new.
pub(super) async fn record(
    store: &Postgres,
    destination: &str,
    start: Start,
) -> Result<bool, StoreError> {
    let (word, time) = columns(start);
    let params: [&dyn Param; 3] = [&destination, &word, &time];
    let sql = query!("delivery/record_start");
    Ok(!store.commit(sql, &params).await?.is_empty())
}

/// A start as the parameters of the statement: a word, or a time.
pub(crate) fn columns(start: Start) -> (Option<&'static str>, Option<Moment>) {
    match start {
        Start::Beginning => (Some("beginning"), None),
        Start::Now => (Some("now"), None),
        // The database has no times as early as the earliest ones.
        Start::At(time) => (None, Some(Moment(time.max(Timestamp::from_millis(0))))),
    }
}
