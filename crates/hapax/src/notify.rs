//! Notifications after commits that contain events.
//!
//! A store notifies after each such commit, and the relay waits for it. Notifications are
//! coalesced, and one may be lost without harm: the relay also polls.
//!
//! A [`Notifier`] connects the two within a process. A [`Sleep`] lets a relay poll rarely although
//! other processes commit events.

use std::any::Any;

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

/// The promise of a source to wake a relay, so that the relay may poll rarely.
///
/// While this exists, the source wakes the relay soon after each commit with events that a read
/// that begins now does not find. A wake-up may be lost if a process or a connection fails at that
/// moment, so the relay polls all the same. Dropping this ends the promise.
#[derive(Debug)]
pub struct Sleep {
    subscription: Subscription,
    /// The task that keeps the promise, unless another process does.
    keeps: Option<Box<dyn Any + Send + Sync>>,
}

impl Sleep {
    /// Creates a promise that another process keeps. It may end without notice, so the relay asks
    /// for it again from time to time.
    ///
    /// Only notifications from now on count, so this is created before the promise begins. The end
    /// of the notifier counts as one.
    pub fn shared(mut subscription: Subscription) -> Self {
        subscription.0.mark_unchanged();
        Self {
            subscription,
            keeps: None,
        }
    }

    /// The same promise, kept by this process until `keeps` is dropped, or until the notifier ends.
    #[must_use]
    pub fn kept_by(self, keeps: impl Any + Send + Sync) -> Self {
        Self {
            keeps: Some(Box::new(keeps)),
            ..self
        }
    }

    /// Whether another process keeps the promise.
    pub fn is_shared(&self) -> bool {
        self.keeps.is_none()
    }

    /// Waits until there may be events, or until the promise has ended.
    pub async fn woken(&mut self) {
        let _ended = self.subscription.0.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_sleep_ends_by_a_notification_that_comes_after_its_beginning_or_with_its_notifier() {
        let notifier = Notifier::new();
        let subscription = notifier.subscribe();
        notifier.notify();
        let mut sleep = Sleep::shared(subscription.clone());
        assert!(sleep.woken().now_or_never().is_none());
        notifier.notify();
        assert!(sleep.woken().now_or_never().is_some());
        let mut sleep = Sleep::shared(subscription).kept_by("a lock");
        assert!(!sleep.is_shared() && sleep.woken().now_or_never().is_none());
        drop(notifier);
        assert!(sleep.woken().now_or_never().is_some());
    }
}
