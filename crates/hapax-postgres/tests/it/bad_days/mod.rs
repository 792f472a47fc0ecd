//! Bad days: networks that lose, servers that die, transactions that cross.
//!
//! Whatever happens, of each key there is at most one effect, what was acknowledged is there,
//! what failed for certain left nothing, and the next retry gets the right answer.

pub(crate) mod day;
mod network;
mod commits;
mod connections;
mod conflicts;
mod leaving;
mod servers;
mod schema;
mod operators;
mod settlements;
