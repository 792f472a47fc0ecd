//! Fills an outbox as fast as its store allows, with thousands of events per transaction.

use std::time::Instant;

use hapax::{
    event::{Headers, NewEvent, Payload},
    limits::EVENTS_PER_TRANSACTION_MAX,
    store::{Keys as _, Transaction as _},
};

use super::Backlog;

/// Writes the events, and returns a text with the duration.
pub(super) async fn fill(backlog: &Backlog) -> anyhow::Result<String> {
    let store = backlog.open()?;
    let start = Instant::now();
    let mut next = 0;
    while next < backlog.events {
        let mut tx = store.begin(None, Headers::new()).await?;
        let last = backlog.events.min(next + EVENTS_PER_TRANSACTION_MAX as u64);
        for number in next..last {
            tx.emit(event(number))?;
        }
        tx.commit().await?;
        next = last;
    }
    store.close().await?;
    Ok(format!(
        "{} events in {:.1?}",
        backlog.events,
        start.elapsed()
    ))
}

/// An event like those of the shop, with 200 bytes of payload.
fn event(number: u64) -> NewEvent {
    let order = format!("ord_{number:032x}");
    let payload = format!(
        r#"{{"id":"{order}","customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue","version":1,"created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}}"#
    );
    NewEvent::new("order.created", Payload::Json(payload))
        .about("order", order)
        .sequence(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_about_200_bytes() {
        let length = event(u64::MAX).payload.bytes().len();
        assert!((180..=220).contains(&length), "{length}");
    }
}
