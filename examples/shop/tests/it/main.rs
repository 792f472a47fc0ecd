//! The shop as its users meet it: a process, its answers, its files.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by failing"
)]

mod shop;
mod orders;
mod storm;
mod instances;
mod kill;
mod payments;
mod phased;
mod refunds;
mod signups;
mod webhooks;
mod ledger;
mod demo;
mod destinations;
mod keys;
mod auth;
mod operations;
mod starting;
mod ending;
mod failing;
