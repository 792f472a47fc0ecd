//! A relay whose clock is corrected, or whose database file is locked by another program for a
//! while.

use std::{sync::Arc, time::Duration};

use hapax::sink::SinkError;
use hapax_testkit::wait::eventually;
use tokio::sync::Semaphore;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

const D: &str = "d";

#[tokio::test]
async fn a_retry_that_was_put_off_by_a_clock_that_was_ahead_is_made_once_it_is_put_right() {
    let stage = Stage::new();
    let right = stage.clock.now();
    stage.clock.advance(Duration::from_hours(72));
    let sink = Recorder::new(|_| Reply::Fail(SinkError::unavailable("no", "not now")));
    let relay = stage.relay(vec![Stage::destination(D, &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.parked(D).await == 1).await;
    sink.now(|_| Reply::Take);
    stage.clock.set(right);
    stage.as_time_passes(|| !sink.taken().is_empty()).await;
    relay.drain().await;
    assert_eq!(sink.taken(), [1]);
}

/// The receiver responds while nothing can be written.
#[tokio::test]
async fn an_event_is_delivered_once_though_another_program_has_the_file_meanwhile() {
    let stage = Stage::new();
    let gate = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let sink = Recorder::new(move |_| Reply::TakeWith(Arc::clone(&waits)));
    let relay = stage.relay(vec![Stage::destination(D, &sink)]);
    stage.emit(&["a", "b"]).await;
    eventually(PATIENCE, async || sink.offers().len() == 2).await;
    let program = stage.program();
    program.execute_batch("BEGIN IMMEDIATE").unwrap();
    gate.add_permits(2);
    eventually(PATIENCE, async || sink.taken().len() == 2).await;
    // The writer has waited for the lock as long as it may.
    assert!(stage.store.write(|_| Ok(())).await.is_err());
    program.execute_batch("COMMIT").unwrap();
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    assert_eq!(relay.stopped(D), None);
    relay.drain().await;
    assert_eq!(sink.offers().len(), 2);
}
