//! Notifications after commits that contain events.
//!
//! A store notifies after each such commit, and the relay waits for it. Notifications are
//! coalesced, and one may be lost without harm: the relay also polls.

use tokio::sync::watch;

/// The sending end, which belongs to the store.
#[derive(Clone, Debug)]
pub struct Wake(watch::Sender<()>);

impl Wake {
    /// Creates a sender without listeners.
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Notifies all listeners.
    pub fn ring(&self) {
        self.0.send_replace(());
    }

    /// Creates a listener, which receives every notification from now on.
    pub fn listen(&self) -> Bell {
        Bell(self.0.subscribe())
    }
}

impl Default for Wake {
    fn default() -> Self {
        Self::new()
    }
}

/// The receiving end, which belongs to the relay.
#[derive(Clone, Debug)]
pub struct Bell(watch::Receiver<()>);

impl Bell {
    /// Waits for a notification since the last call; forever if the store is gone.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
