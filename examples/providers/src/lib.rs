//! A payment provider and a shipping provider, as foreign to the shop as a real one.
//!
//! Each keeps a ledger of its own, fsynced before any answer, and shares no code, database or
//! clock with whoever calls it. Every operation takes an `Idempotency-Key` and happens once under
//! it. Told to, a provider applies an operation and loses the answer, loses the request, fails
//! before or after, dawdles, or calls a repeated key a duplicate.
//!
//! The programs `payment-provider` and `shipping-provider` serve one each; the shop's demo serves
//! both in its own process.

mod command;
mod server;
mod desk;
mod reply;
mod faults;
mod payment;
mod shipping;
mod book;
mod ledger;
mod around;

use std::{io, path::Path};

use axum::Router;

pub use self::{command::run, server::serve};

/// The payment provider whose ledger is the file at `ledger`.
///
/// # Errors
/// Fails when the ledger cannot be read, or another process has it open.
pub fn payment(ledger: &Path) -> io::Result<Router> {
    payment::routes(ledger)
}

/// The shipping provider whose ledger is the file at `ledger`.
///
/// # Errors
/// Fails when the ledger cannot be read, or another process has it open.
pub fn shipping(ledger: &Path) -> io::Result<Router> {
    shipping::routes(ledger)
}
