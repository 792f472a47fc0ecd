//! Notifications after commits that contain events.
//!
//! A store notifies after each such commit, and the relay waits for it. Notifications are
//! coalesced, and one may be lost without harm: the relay also polls.

use tokio::sync::watch;

/// The sending end, which belongs to the store.
#[derive(Clone, Debug)]
pub struct Notifier(watch::Sender<()>);

impl Notifier {
    /// Creates a sender without listeners.
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Notifies all listeners.
    pub fn notify(&self) {
        self.0.send_replace(());
    }

    /// Creates a listener, which receives every notification from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription(self.0.subscribe())
    }
}

impl Default for Notifier {
    fn default() -> Self {
        Self::new()
    }
}

/// The receiving end, which belongs to the relay.
#[derive(Clone, Debug)]
pub struct Subscription(watch::Receiver<()>);

impl Subscription {
    /// Waits for a notification since the last call; forever if the store is gone.
    pub async fn notified(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
