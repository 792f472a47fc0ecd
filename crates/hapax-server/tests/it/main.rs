//! Tests of the `hapax` binary as a user runs it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod hapax;
mod store;
mod config;
mod pages;
mod migrate;
mod sqlite;
mod secrets;
mod doctor;
mod relay;
mod retention;
mod sources;
mod feeds;
mod sharing;
mod gauges;
mod listeners;
mod crashes;
mod admin;
mod probed;
mod asked;
mod operator_commands;
mod filters;
mod mappings;
mod retry;
mod test_event;
mod objects;
mod listen;
mod console;
mod gateway;
mod unknown_outcomes;
mod send;
mod sagas;
mod polling;
mod catalogue;
mod endpoints;
mod portal;
mod operational_events;
mod thin_payloads;
