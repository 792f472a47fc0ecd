//! Tests that judge the packages for TypeScript and Python from outside.
//!
//! Each test runs real processes on a fresh database: services that are written with the installed
//! archives of the packages. `cargo x sdk` builds and installs them, and then runs these tests.
//! Most tests run with one framework and one driver of each language; `whole` runs all of them.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod kind;
mod service;
mod shop;
mod axum_shop;
mod answers;
mod failures;
mod races;
mod languages;
mod statements;
mod kills;
mod commits;
mod pooled;
mod webhooks;
mod delivered;
mod examples;
mod probed;
mod whole;
