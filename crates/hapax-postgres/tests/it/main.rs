//! Tests of the PostgreSQL store, on a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod fixture;
mod bad_days;
mod contract;
mod cut_over;
mod groups;
mod deadlines;
mod pipelined;
mod payload_locks;
mod optimistic;
mod ended;
mod encryption;
mod catalogue;
mod plans;
mod phases;
mod phase_groups;
mod lost_entries;
mod matrix;
mod conformance;
mod queries;
mod reading;
mod polling;
mod deliveries;
mod endpoint_locks;
mod table_source;
mod feeds;
mod sources;
mod retention;
mod rotation;
mod rotations;
mod kept;
mod absent;
mod history;
mod inbox;
mod at_commit;
mod sagas;
mod relay;
mod idle;
mod admin;
#[cfg(feature = "sqlx")]
mod adapter;
#[cfg(feature = "sqlx")]
mod sqlx_store;
#[cfg(feature = "sqlx")]
mod sqlx_conformance;
