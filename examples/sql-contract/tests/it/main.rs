//! What is fired at the two services: duplicates, races, kills, and hostile words.
//!
//! Every test runs real processes on a fresh database, once for each language. `cargo x contract`
//! installs the packages that the services need, and then runs these tests.

mod service;
mod shop;
mod answers;
mod failures;
mod races;
mod kills;
mod webhooks;
