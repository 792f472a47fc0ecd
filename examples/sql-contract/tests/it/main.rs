//! Tests of the two services: duplicates, races, kills, and hostile requests.
//!
//! Each test runs real processes on a fresh database, once for each language. `cargo x contract`
//! installs the packages that the services need, and then runs these tests.

mod service;
mod shop;
mod answers;
mod failures;
mod races;
mod kills;
mod webhooks;
