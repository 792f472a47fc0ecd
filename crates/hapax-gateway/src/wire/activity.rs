//! The state of a connection of HTTP/1: whether it waits for a request, and has nothing else to do.
//!
//! hyper does not say whether a connection is idle. Three observations together do: its last read has
//! found no bytes at the boundary between two requests, everything that was written is flushed, and
//! no request is in flight.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// The state of a connection, which its bytes, its requests and its driver share.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    is_upgraded: AtomicBool,
    is_blocked: AtomicBool,
    is_unflushed: AtomicBool,
    in_flight: AtomicUsize,
    begun: AtomicUsize,
}

/// A request in flight, until its response has been handed over completely.
#[derive(Debug)]
pub(crate) struct InService(Arc<Activity>);

impl Activity {
    /// Counts a request that begins.
    pub(crate) fn begin(self: &Arc<Self>) -> InService {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        InService(Arc::clone(self))
    }

    /// How many requests have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether the connection waits for a request, and has nothing else to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_blocked.load(Ordering::SeqCst)
            && !self.is_unflushed.load(Ordering::SeqCst)
            && self.in_flight.load(Ordering::SeqCst) == 0
    }

    /// Records that the service has accepted a change of the protocol. The body of a response may
    /// look like the beginning of one.
    pub(crate) fn upgraded(&self) {
        self.is_upgraded.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.is_upgraded.load(Ordering::SeqCst)
    }

    /// Records whether the last read waits for the first byte of a request.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
    }

    /// Records whether there are written bytes that are not flushed.
    pub(super) fn set_unflushed(&self, is_unflushed: bool) {
        self.is_unflushed.store(is_unflushed, Ordering::SeqCst);
    }
}

impl Drop for InService {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
