//! The names of the failpoints. The tests of the torture include this file too, and compare it with the
//! sources.

/// Failpoints of a shop, besides the commits of its store. Those of its relay are also in a separate
/// relay.
pub(crate) const SHOP: [&str; 23] = [
    "payments.call.before",
    "payments.call.after",
    "payments.charged",
    "refunds.reserved",
    "refunds.call.before",
    "refunds.call.after",
    "checkouts.started",
    "uploads.stored",
    "thumbnails.before",
    "thumbnails.after",
    "saga.local.before",
    "saga.local.after",
    "saga.intent.before",
    "saga.intent.after",
    "saga.call.before",
    "saga.call.after",
    "saga.outcome.after",
    "saga.end.before",
    "saga.end.after",
    "relay.offer.before",
    "relay.offer.after",
    "relay.settle.before",
    "relay.settle.after",
];
