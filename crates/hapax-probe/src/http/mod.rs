//! HTTP/1.1, spoken byte by byte.
//!
//! A [`Request`] is sent exactly as it is written, also if it is not valid HTTP. A [`Response`] keeps
//! the status, all header fields in their order and the body. Each exchange has a connection of its
//! own, which the probe can cut at any byte.

mod target;
mod request;
mod response;
mod reader;
mod connection;
mod curl;

pub(crate) use connection::{Connector, Cut, Failure};
pub(crate) use curl::{curl, is_secret};
pub(crate) use request::{Framing, Request};
pub(crate) use response::{Field, Response};
pub(crate) use target::{Target, TargetError};
