//! The sinks with real receivers: sockets, TLS, mail servers, files, a store.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its fixtures has failed"
)]

mod events;
mod sinks;
mod webhook;
mod authentication;
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
mod requests;
mod s3;
mod sqs;
mod sns;
mod pubsub;
mod signed;
mod answers;
mod cuts;
mod strays;
mod conformance;
