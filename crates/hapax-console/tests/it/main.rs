//! The console over real HTTP, on a real PostgreSQL with rows planted.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by failing"
)]

mod scene;
mod pages;
mod markup;
mod auth;
mod acts;
mod tenants;
mod live;
