//! Kills of the gateway: at each commit, while it waits for the service, and after the answer; and a
//! load with random faults.

mod scenes;
mod traffic;
mod nemesis;
mod report;
mod load;

pub(crate) use load::{Load, check};
