//! The contract against a real store, route by route and row by row.

#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

mod stage;
mod answers;
mod keys;
mod fingerprints;
mod conditions;
mod derived;
mod bodies;
mod remembered;
mod purged;
mod quotas;
mod waiting;
mod conflicts;
mod riding;
mod violations;
mod store_errors;
mod plans;
mod phased;
mod problems;
mod webhooks;
mod services;
mod listener;
mod metrics;
