//! What the SQLite store must do: the law of all stores, and what is its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod fixture;
mod law;
mod sources;
mod groups;
mod transactions;
mod violations;
mod riding;
mod failures;
mod sagas;
mod encryption;
mod retention;
mod reading;
mod inbox;
mod opening;
mod queries;
mod clock;
