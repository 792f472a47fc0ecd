//! The PostgreSQL store under test, on a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod fixture;
mod bad_days;
mod contract;
mod groups;
mod riding;
mod encryption;
mod plans;
mod phases;
mod matrix;
mod law;
mod queries;
mod reading;
mod deliveries;
mod existing;
mod sources;
mod retention;
mod ring;
mod turns;
mod kept;
mod absent;
mod history;
mod inbox;
mod sagas;
mod relay;
mod operate;
#[cfg(feature = "sqlx")]
mod adapter;
