//! Real HTTP on loopback: a client that sends what it is told, and a receiver that misbehaves.
//!
//! Both speak HTTP/1.1 over real sockets, so that what is tested is what
//! users meet: connections that end early, bodies that never do, answers that
//! come too late.

mod client;
mod receiver;

pub use client::{HttpAnswer, HttpClient};
pub use receiver::{HttpReceiver, HttpReply, Received};
