//! A saga of two steps: reserve a seat in the database, then charge a card at a provider.
//!
//! `cargo run -p saga` prints what happens. The response to the first charge is lost, so its outcome
//! is unknown. The saga repeats the call under the same key, and the card is charged once.
#![expect(clippy::print_stdout, reason = "the program shows what happens")]

use std::{error::Error, future::ready, time::Duration};

use bytes::Bytes;
use hapax::{
    Clock, Random,
    event::Headers,
    saga::{Call, Definition, Outcome, Refusal, Runner, Settings, State, Step},
    store::{Keys as _, SagaRecords as _, SagaRows as _, Transaction as _},
};
use hapax_sqlite::{Sqlite, Tx};

/// Calls the provider, which charges once per key. Its first response is lost.
fn charge(call: &Call) -> Outcome<Bytes> {
    println!("attempt {} to charge under {}", call.attempt, call.key);
    match call.attempt {
        1 => Outcome::Unknown("the response was lost".into()),
        _ => Outcome::Done(Bytes::new()),
    }
}

fn booking() -> Definition<Tx> {
    let reserve = Step::local_fn("reserve", |tx: &mut Tx, _| {
        Box::pin(async move {
            let sql = "UPDATE seat SET free = free - 1 WHERE free > 0";
            let changed = tx.with(move |rows| rows.execute(sql, [])).await?;
            let is_free = (changed == 1).then(Bytes::new);
            Ok(is_free.ok_or_else(|| Refusal::new("sold_out", "no seat is free")))
        })
    });
    let charge = Step::remote_fn("charge", |call| Box::pin(ready(charge(call))));
    Definition::new("booking", 1)
        .step(reserve)
        .step(charge.pivot())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (clock, random) = (Clock::system(), Random::system());
    let settings = hapax_sqlite::Settings::new("bookings.db", clock.clone(), random.clone());
    let store = Sqlite::open(settings)?;
    let seats = "CREATE TABLE seat (free INTEGER NOT NULL); INSERT INTO seat VALUES (10)";
    store.migrate("bookings", &[(1, "seats", seats)]).await?;

    let (booking, id) = (booking(), format!("booking-{}", clock.now()));
    let mut tx = store.begin(None, Headers::new()).await?;
    let saga = booking.begin(&id, None, Bytes::from_static(b"20 EUR"));
    tx.start_saga(&saga).await?;
    tx.commit().await?;

    let settings = Settings::new(clock, random);
    let runner = Runner::spawn(&store, vec![booking], settings, &store.notifier());
    let mut state = State::Running;
    while state == State::Running {
        tokio::time::sleep(Duration::from_millis(20)).await;
        state = store
            .saga(&id)
            .await?
            .map_or(state, |saga| saga.status.state);
    }
    println!("{id}: {state:?}");
    runner.drain().await;
    Ok(())
}
