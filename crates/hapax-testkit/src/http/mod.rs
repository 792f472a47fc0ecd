//! HTTP on loopback: a client, and a receiver with faults.
//!
//! Both use HTTP/1.1 over real sockets, so that tests cover what users encounter: connections that
//! end early, bodies that never end, responses that arrive too late.

mod client;
mod receiver;

pub use client::{HttpClient, HttpResponse};
pub use receiver::{End, HttpReceiver, HttpReply, Received};
