//! Tests of the gateway with a real upstream, a real store and real sockets.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod stage;
mod upstream;
mod responses;
mod outcomes;
mod not_sent;
mod store_failures;
mod look_ups;
mod health;
mod streaming;
mod requests;
mod http2;
mod tls;
mod proxy_protocol;
mod rates;
mod two_gateways;
mod lost_entries;
mod configuration;
mod reload;
mod tenant;
mod ingest;
mod mcp;
