//! The sinks against real far sides: sockets, TLS, mail servers, files, a store.

mod events;
mod receiver;
mod webhook;
mod ssrf;
mod tls;
