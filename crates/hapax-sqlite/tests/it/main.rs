//! What the SQLite store must do: the law of all stores, and what is its own.

mod fixture;
mod law;
mod groups;
mod transactions;
mod failures;
mod opening;
mod queries;
