//! Whose a destination is: signs of life, and their absence.
//!
//! An owner writes one down every so often. Whoever waits for it to die does
//! not compare clocks: it looks whether the sign changes, and takes its own
//! time. An owner that is taken for dead and is not finds itself fenced, at
//! its next sign or at its next settlement, before it offers anything more.

use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep};

use crate::store::{Deliveries, StoreError};

/// Signs of life in the time after which their absence means death.
const SIGNS: u32 = 5;

/// Shows signs of life for as long as `epoch` owns the destination; returns when it does not.
///
/// Without `patience` nobody looks, and it never returns.
pub(super) async fn beat<S: Deliveries>(
    store: &S,
    destination: &str,
    epoch: i64,
    patience: Option<Duration>,
) {
    let Some(patience) = patience else {
        return pending().await;
    };
    loop {
        sleep(patience / SIGNS).await;
        match store.beat(destination, epoch).await {
            Ok(()) => {}
            Err(StoreError::Fenced) => return,
            Err(error) => {
                tracing::debug!(
                    destination,
                    error = error.story(),
                    "no sign of life is written"
                );
            }
        }
    }
}

/// Returns when the owner of the destination has shown no sign of life for as long as `patience`.
///
/// While the store cannot be reached nobody can show any: that time does not count.
pub(super) async fn is_gone<S: Deliveries>(store: &S, destination: &str, patience: Duration) {
    let mut last = None;
    let mut since = Instant::now();
    loop {
        match store.owner(destination).await {
            Ok(owner) if owner == last => {
                if since.elapsed() >= patience {
                    return;
                }
            }
            Ok(owner) => (last, since) = (owner, Instant::now()),
            Err(error) => {
                since = Instant::now();
                tracing::debug!(destination, error = error.story(), "the owner is not known");
            }
        }
        sleep(patience / SIGNS).await;
    }
}
