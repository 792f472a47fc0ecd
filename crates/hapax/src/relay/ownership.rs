//! Whose a destination is: signs of life, and their absence.
//!
//! An owner writes one down every so often. Whoever waits for it to die does
//! not compare clocks: it looks as often, and counts the looks at which the
//! sign has not changed. An owner that is taken for dead and is not finds
//! itself fenced, at its next sign or at its next settlement, before it offers
//! anything more.

use std::{future::pending, time::Duration};

use tokio::time::sleep;

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
/// What counts are looks, not time: while the store cannot be reached nobody can show a sign, and
/// while this process is held up it sees none.
pub(super) async fn is_gone<S: Deliveries>(store: &S, destination: &str, patience: Duration) {
    let mut last = None;
    let mut silent = 0;
    while silent < SIGNS {
        match store.owner(destination).await {
            Ok(owner) if owner == last => silent += 1,
            Ok(owner) => (last, silent) = (owner, 0),
            Err(error) => {
                tracing::debug!(destination, error = error.story(), "the owner is not known");
            }
        }
        sleep(patience / SIGNS).await;
    }
}
