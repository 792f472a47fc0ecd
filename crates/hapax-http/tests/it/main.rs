//! Tests of the HTTP contract with real stores.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod stage;
mod log;
mod responses;
mod profiles;
mod keys;
mod fingerprints;
mod vectors;
mod conditions;
mod derived;
mod bodies;
mod remembered;
mod purged;
mod quotas;
mod rate_limits;
mod waiting;
mod conflicts;
mod sqlx_handlers;
mod pipelined;
mod running;
mod parcels;
mod optimistic;
mod violations;
mod store_errors;
mod store_failures;
mod plans;
mod phased;
mod passed_on;
mod problems;
mod webhooks;
mod at_commit;
mod services;
mod listener;
mod metrics;
mod request_lines;
