//! The PostgreSQL store under test, on a real server.

mod fixture;
mod contract;
mod groups;
mod matrix;
mod law;
mod queries;
#[cfg(feature = "sqlx")]
mod adapter;
