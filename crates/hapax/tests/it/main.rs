//! Tests of the relay, of trials and of sagas with a real store.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

mod recorder;
mod relay;
mod filters;
mod endpoint_waits;
mod trials;
mod blocked;
mod strain;
mod changes;
mod standby;
mod set_back;
mod faults;
mod operators;
mod sagas;
mod saga_words;
mod saga_faults;
mod saga_metrics;
mod saga_stage;
mod saga_provider;
mod stage;
