//! A hint that something was committed.
//!
//! A store rings after a commit that holds events, the relay listens. Rings
//! coalesce and may be lost to no harm: the relay also looks by itself.

use tokio::sync::watch;

/// The store's end: rung after every commit that the relay should look at.
#[derive(Clone, Debug)]
pub struct Wake(watch::Sender<()>);

impl Wake {
    /// A bell that nobody listens to yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Tells every listener to look.
    pub fn ring(&self) {
        self.0.send_replace(());
    }

    /// Starts to listen; hears every ring from now on.
    pub fn listen(&self) -> Bell {
        Bell(self.0.subscribe())
    }
}

impl Default for Wake {
    fn default() -> Self {
        Self::new()
    }
}

/// The relay's end.
#[derive(Clone, Debug)]
pub struct Bell(watch::Receiver<()>);

impl Bell {
    /// Waits for a ring since the last time; forever when the store is gone.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
