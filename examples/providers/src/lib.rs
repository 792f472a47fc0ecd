//! A payment provider and a shipping provider, external systems for the shop.
//!
//! Each provider keeps its own ledger, which is fsynced before any response is sent, and shares no
//! code, database or clock with its callers. Every operation takes an `Idempotency-Key` and is
//! applied at most once per key. On demand, a provider applies an operation and loses the response,
//! loses the request, fails before or after the operation is applied, responds slowly, or rejects a
//! repeated key as a duplicate.
//!
//! The programs `payment-provider` and `shipping-provider` serve one provider each. The shop's demo
//! serves both in its own process.

mod command;
mod server;
mod provider;
mod reply;
mod faults;
mod payment;
mod shipping;
mod decisions;
mod ledger;
mod around;

use std::{io, path::Path};

use axum::Router;

pub use self::{command::run, server::serve};

/// Returns the routes of a payment provider that keeps its ledger in the file at `ledger`.
///
/// # Errors
/// Fails when the ledger cannot be read, or another process has it open.
pub fn payment(ledger: &Path) -> io::Result<Router> {
    payment::routes(ledger)
}

/// Returns the routes of a shipping provider that keeps its ledger in the file at `ledger`.
///
/// # Errors
/// Fails when the ledger cannot be read, or another process has it open.
pub fn shipping(ledger: &Path) -> io::Result<Router> {
    shipping::routes(ledger)
}
