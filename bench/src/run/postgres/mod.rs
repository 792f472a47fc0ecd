//! Measurements of PostgreSQL only. Those of both stores are in the parent module.

mod server;
mod side;
mod writes;
mod round_trip;
mod transactions;
mod nodes;

pub(super) use nodes::nodes;
pub(super) use round_trip::round_trip;
pub(super) use server::{Server, connect};
pub(super) use side::{Reference, fastest_pool};
pub(super) use transactions::transactions;
pub(super) use writes::writes;
