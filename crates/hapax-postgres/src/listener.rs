//! Listener: the connection by which a relay sleeps.
//!
//! It listens for commits of events, and holds the advisory lock by which producers know that they
//! have to notify (`hapax.wake_relays`). The lock belongs to the session, so it ends with the
//! connection and is never left behind. One relay of a database holds it, and the others rely on it
//! for a moment at a time. Behind a pooler in transaction mode a session keeps neither, and relays
//! do not sleep.

use std::{future::poll_fn, sync::Arc, time::Duration};

use hapax::{
    notify::{Notifier, Sleep, Subscription},
    store::StoreError,
};
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Client};

use crate::{connection::within, dial::connect, error::unavailable, query, settings::Settings};

/// The server ends a session that holds the lock and is silent for longer than this: its process
/// may be stopped or hang, and commits would notify it for ever.
const SILENT_MAX: &str = "SET idle_session_timeout = '15s'";
/// The limit for a session without the lock: none.
const SILENT: &str = "SET idle_session_timeout = 0";
/// Interval of the statements that show the server that this process runs.
const ALIVE: Duration = Duration::from_secs(5);

/// The listener of a node while it does not sleep, if it is connected.
pub(crate) type Slot = Arc<Mutex<Option<Listener>>>;

/// A connection that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    client: Client,
    heard: Subscription,
    statement_max: Duration,
}

/// Who holds the lock.
enum Holder {
    Ours,
    Other,
    Nobody,
}

/// Has producers notify this node after each commit of events; `None` if they cannot now.
pub(crate) async fn sleep(slot: &Slot, settings: &Settings) -> Result<Option<Sleep>, StoreError> {
    if settings.pooled {
        return Ok(None);
    }
    // It is in use if another relay of this process sleeps, or if a sleep has ended a moment ago.
    let Ok(mut slot) = Arc::clone(slot).try_lock_owned() else {
        return Ok(None);
    };
    let listener = match slot.take().filter(|listener| !listener.client.is_closed()) {
        Some(listener) => listener,
        None => Listener::connect(settings).await?,
    };
    // Created before the lock is taken: it receives every notification that the lock causes.
    let sleep = Sleep::shared(listener.heard.clone());
    let holder = listener.take_lock().await?;
    match holder {
        Holder::Ours => {
            listener.run(SILENT_MAX).await?;
            let (keeps, mut dropped) = oneshot::channel::<()>();
            tokio::spawn(async move {
                // If a statement fails, the lock is released with the connection.
                while timeout(ALIVE, &mut dropped).await.is_err() {
                    if listener.run("").await.is_err() {
                        return;
                    }
                }
                if listener.release_lock().await.is_ok() {
                    *slot = Some(listener);
                }
            });
            Ok(Some(sleep.kept_by(keeps)))
        }
        Holder::Other => {
            *slot = Some(listener);
            Ok(Some(sleep))
        }
        Holder::Nobody => {
            *slot = Some(listener);
            Ok(None)
        }
    }
}

impl Listener {
    async fn connect(settings: &Settings) -> Result<Self, StoreError> {
        let (client, mut connection) = connect(settings).await.map_err(unavailable)?;
        let notifier = Notifier::new();
        let heard = notifier.subscribe();
        tokio::spawn(async move {
            // The notifier is dropped when the connection ends, which wakes the relay.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    notifier.notify();
                }
            }
        });
        let listener = Self {
            client,
            heard,
            statement_max: settings.statement_max,
        };
        listener.run("LISTEN hapax_outbox").await?;
        Ok(listener)
    }

    async fn take_lock(&self) -> Result<Holder, StoreError> {
        let asked = self.client.query_typed(query!("outbox/sleep"), &[]);
        let rows = within(self.statement_max, asked).await?;
        let holder = rows.first().map_or("none", |row| row.get(0));
        Ok(match holder {
            "ours" => Holder::Ours,
            "other" => Holder::Other,
            _ => Holder::Nobody,
        })
    }

    async fn release_lock(&self) -> Result<(), StoreError> {
        self.run(query!("outbox/wake")).await?;
        self.run(SILENT).await
    }

    async fn run(&self, sql: &str) -> Result<(), StoreError> {
        let ran = within(self.statement_max, self.client.batch_execute(sql)).await;
        Ok(ran?)
    }
}
