//! The inbox: a message is taken once, in the transaction of its effect.

use hapax::inbox::{Acceptance, Message};

use tokio_postgres::Row;

use crate::{
    connection::Link,
    query,
    value::{Moment, Param},
};

/// Takes a message for its consumer.
///
/// Another transaction that is taking it is waited for: only its end says whether it was taken.
pub(crate) async fn accept(
    link: &Link,
    message: &Message,
    time: Option<Moment>,
) -> Result<Acceptance, tokio_postgres::Error> {
    let (consumer, id) = (message.consumer.as_str(), message.message_id.as_str());
    let (source, hash): (&str, &[u8]) = (&message.source, &message.payload_hash);
    let params: [&dyn Param; 5] = [&consumer, &id, &source, &hash, &time];
    loop {
        if !link.ask(query!("inbox/accept"), &params).await?.is_empty() {
            return Ok(Acceptance::First);
        }
        let known = link
            .ask(query!("inbox/find"), &[&consumer, &id, &source])
            .await?;
        // A row that retention deletes between the two is free to be taken.
        if let Some(row) = known.first() {
            return Ok(if row.get::<_, &[u8]>(0) == hash {
                Acceptance::Duplicate
            } else {
                Acceptance::Mismatch
            });
        }
    }
}

/// How many messages a purge says that it deleted.
pub(crate) fn purged(rows: &[Row]) -> u64 {
    let count = rows.first().map_or(0, |row| row.get::<_, i64>(0));
    count.unsigned_abs()
}
