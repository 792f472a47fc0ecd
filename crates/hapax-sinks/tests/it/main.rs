//! The sinks with real receivers: sockets, TLS, mail servers, files, a store.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its fixtures has failed"
)]

mod events;
mod sinks;
mod webhook;
mod ssrf;
mod resolve;
mod tls;
mod published;
mod smtp;
mod smtp_login;
mod handler;
mod file;
mod consumer;
mod nats;
mod redis;
mod postgres;
mod amqp_broker;
mod amqp;
mod amqp_node;
mod kafka_cluster;
mod kafka;
mod kafka_neighbours;
mod kafka_time;
mod answers;
mod cuts;
mod strays;
mod conformance;
