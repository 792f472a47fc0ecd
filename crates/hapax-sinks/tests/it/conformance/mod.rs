//! Every sink in the conformance suite of `hapax-testkit`.

mod webhook;
mod smtp;
mod handler;
mod file;
mod nats;
mod redis;
mod postgres;
mod amqp;
mod kafka;
mod service;
mod s3;
mod sqs;
mod sns;
mod pubsub;
