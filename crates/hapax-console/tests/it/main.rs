//! Tests of the console over real HTTP, with rows in a real PostgreSQL database.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod scene;
mod pages;
mod markup;
mod auth;
mod acts;
mod attention;
#[cfg(feature = "catalogue")]
mod catalogue;
mod endpoints;
mod selection;
mod tenants;
mod unknown;
mod live;
