//! The inbox: a message is taken once, in the transaction of its effect.

use hapax::inbox::{Acceptance, Message};

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
    if !link.ask(query!("inbox/accept"), &params).await?.is_empty() {
        return Ok(Acceptance::First);
    }
    let params: [&dyn Param; 2] = [&consumer, &id];
    let known = link.ask(query!("inbox/find"), &params).await?;
    let same = known
        .first()
        .is_some_and(|row| row.get::<_, &[u8]>(0) == hash);
    Ok(if same {
        Acceptance::Duplicate
    } else {
        Acceptance::Mismatch
    })
}
