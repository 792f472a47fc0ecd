//! Listener: the sessions by which a relay sleeps.
//!
//! One session holds the advisory lock by which producers know that they have to notify, and the
//! other one listens to them. Both end with their connections, so nothing is left behind. The
//! session with the lock receives no notifications: while it is silent, nothing keeps the server
//! from ending it. One relay of a database holds the lock, and the others rely on it for a moment
//! at a time. Behind a pooler in transaction mode a session keeps neither, and relays do not sleep.

use std::{future::poll_fn, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::try_join};
use hapax::{
    notify::{Notifier, Sleep, Subscription},
    store::StoreError,
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard, oneshot},
    time::sleep,
};
use tokio_postgres::{AsyncMessage, Client};

use crate::{connection::within, dial::connect, error::unavailable, query, settings::Settings};

/// Interval of the statements that show that both sessions work. The server ends the session with
/// the lock after 30 s without one (`outbox/sleep`).
const ALIVE: Duration = Duration::from_secs(10);

/// The listener of a node.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// The sessions while the node does not sleep, if they are connected.
    sessions: Arc<Mutex<Option<Sessions>>>,
    /// Ends the sessions.
    ends: Notifier,
}

/// Two connections.
#[derive(Debug)]
struct Sessions {
    lock: Client,
    listening: Client,
    /// Notified by producers, and when a session ends.
    notifier: Notifier,
    statement_max: Duration,
}

/// The holder of the lock.
enum Holder {
    Ours,
    Other,
    /// A transaction of a producer.
    Nobody,
    /// Relays cannot sleep on this server.
    Never,
}

impl Listener {
    /// Has producers notify this node after each commit of events; `None` if they cannot now.
    ///
    /// If this is dropped half-way, the connections are closed.
    pub(crate) async fn sleep(&self, settings: &Settings) -> Result<Option<Sleep>, StoreError> {
        if settings.pooled {
            return Ok(None);
        }
        // They are in use if another relay of this process sleeps, or if a sleep has ended a moment
        // ago.
        let Ok(mut slot) = Arc::clone(&self.sessions).try_lock_owned() else {
            return Ok(None);
        };
        let mut ends = self.ends.subscribe();
        let sessions = match slot.take().filter(Sessions::are_open) {
            Some(sessions) => sessions,
            None => Sessions::connect(settings).await?,
        };
        // Whoever relies on the lock has to hear of commits.
        sessions.run(&sessions.listening, "").await?;
        // Created before the lock is taken: it receives every notification that the lock causes.
        let sleep = Sleep::shared(sessions.notifier.subscribe());
        let holder = sessions.take_lock().await?;
        let is_held = match holder {
            Holder::Ours => {
                let (keeps, is_dropped) = oneshot::channel();
                tokio::spawn(hold(slot, sessions, is_dropped, ends));
                return Ok(Some(sleep.kept_by(keeps)));
            }
            Holder::Other => true,
            Holder::Nobody => false,
            Holder::Never => return Err(unavailable(PREPARES)),
        };
        if ends.notified().now_or_never().is_none() {
            *slot = Some(sessions);
        }
        Ok(is_held.then_some(sleep))
    }

    /// Closes the sessions, which wakes the relay. They may lead to a server that is no longer the
    /// primary.
    pub(crate) fn end(&self) {
        self.ends.notify();
        if let Ok(mut sessions) = self.sessions.try_lock() {
            *sessions = None;
        }
    }
}

const POOLED: &str = "there seems to be a pooler in transaction mode, which `pooled` has to say";
const PREPARES: &str = "relays do not sleep on a server whose `max_prepared_transactions` is not 0";

/// Holds the lock until the sleep is dropped. If a session does not respond any more, both are
/// closed and the relay is woken.
async fn hold(
    mut slot: OwnedMutexGuard<Option<Sessions>>,
    sessions: Sessions,
    is_dropped: oneshot::Receiver<()>,
    mut ends: Subscription,
) {
    let is_kept = tokio::select! {
        _ = is_dropped => true,
        () = sessions.fail() => false,
        () = ends.notified() => false,
    };
    if !is_kept {
        sessions.notifier.notify();
    } else if sessions.release_lock().await.is_ok() {
        *slot = Some(sessions);
    }
}

impl Sessions {
    async fn connect(settings: &Settings) -> Result<Self, StoreError> {
        let connection = || Box::pin(connect(settings));
        let connected = try_join(connection(), connection()).await;
        let ((lock, locking), (listening, mut receiving)) = connected.map_err(unavailable)?;
        let notifier = Notifier::new();
        let (on_end, on_message) = (notifier.clone(), notifier.clone());
        tokio::spawn(async move {
            let _closed = locking.await;
            on_end.notify();
        });
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| receiving.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    on_message.notify();
                }
            }
            on_message.notify();
        });
        let sessions = Self {
            lock,
            listening,
            notifier,
            statement_max: settings.statement_max,
        };
        if !sessions.are_kept().await? {
            return Err(unavailable(POOLED));
        }
        let listens = sessions.run(&sessions.listening, "LISTEN hapax_outbox");
        listens.await?;
        Ok(sessions)
    }

    /// Whether each connection has a session of the server. Otherwise the lock would be left in a
    /// session of the pooler.
    async fn are_kept(&self) -> Result<bool, StoreError> {
        let lock = self.pid(&self.lock).await?;
        let listening = self.pid(&self.listening).await?;
        Ok(lock != listening && lock == self.pid(&self.lock).await?)
    }

    async fn pid(&self, session: &Client) -> Result<Option<i32>, StoreError> {
        let asked = session.query_typed(query!("outbox/session"), &[]);
        let rows = within(self.statement_max, asked).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn are_open(&self) -> bool {
        !self.lock.is_closed() && !self.listening.is_closed()
    }

    async fn take_lock(&self) -> Result<Holder, StoreError> {
        let asked = self.lock.query_typed(query!("outbox/sleep"), &[]);
        let rows = within(self.statement_max, asked).await?;
        let holder = rows.first().map_or("none", |row| row.get(0));
        Ok(match holder {
            "ours" => Holder::Ours,
            "other" => Holder::Other,
            "never" => Holder::Never,
            _ => Holder::Nobody,
        })
    }

    async fn release_lock(&self) -> Result<(), StoreError> {
        self.run(&self.lock, query!("outbox/wake")).await
    }

    /// Returns when one of the sessions does not respond.
    async fn fail(&self) {
        loop {
            sleep(ALIVE).await;
            let both = try_join(self.run(&self.lock, ""), self.run(&self.listening, ""));
            if both.await.is_err() {
                return;
            }
        }
    }

    async fn run(&self, session: &Client, sql: &str) -> Result<(), StoreError> {
        let ran = within(self.statement_max, session.batch_execute(sql)).await;
        Ok(ran?)
    }
}
