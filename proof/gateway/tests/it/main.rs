//! Tests of `hapax gateway` from outside: the program, real sockets, and a service with a ledger.
//!
//! The invariant: a key has at most one line in the ledger of the service. A key with a line is
//! answered with the answer of that line, or its outcome is unknown. No client gets an answer that
//! the service did not give, and a replay has the bytes of the first answer. By default every fault
//! happens at least once; the [`long`] runs repeat them.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod wire;
mod frames;
mod upstream;
mod gateway;
mod ledger;
mod faults;
mod cuts;
mod kills;
mod corpus;
mod smuggling;
mod smuggling_http2;
mod nginx;
mod differential;
mod http2_upstream;
mod protocols;
mod clients;
mod large;
mod public;
mod mcp;
mod probed;
mod long;
