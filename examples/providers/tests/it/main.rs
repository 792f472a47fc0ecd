//! The providers as their callers meet them: processes, answers, ledgers.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by failing"
)]

mod provider;
mod keys;
mod faults;
mod payments;
mod shipments;
mod crashes;
