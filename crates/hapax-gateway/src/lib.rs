//! Gateway in front of an unchanged HTTP service, which makes the service's retries safe.
//!
//! No request reaches the service twice unless nothing of the first one left the gateway. Every
//! other end is a complete response, which is stored and replayed byte for byte, or an unknown
//! outcome: the key stays in progress, and a retry is not sent to the service again. What the
//! gateway cannot promise is that the effect in the service and the stored response are one commit.
//!
//! The modules are declared in the order in which a request passes through them. A protected
//! request runs under the phased mode of `hapax-http`; its handler commits the phase `sent` before
//! the first byte can leave.

pub mod config;
pub mod headers;
mod peer;
mod access_log;
mod metrics;
pub mod listener;
mod wire;
mod holding;
mod tls;
mod guard;
pub mod tenant;
pub mod mcp;
pub mod ingest;
mod routes;
mod upstream;
mod stream;
mod upgrade;
pub mod unknown;
mod protected;
mod tool_call;
mod entry;
mod resume;
mod state;
mod gateway;
pub mod waiting;
pub mod check;

pub use gateway::Gateway;
pub use peer::Peer;
pub use state::SetUpError;
