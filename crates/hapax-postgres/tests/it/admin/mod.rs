//! Functions for operators: the conformance suite, and what only this store has: locks, plans,
//! snapshots, estimates, and rows that are changed by SQL.

mod scene;
mod conformance;
mod destinations;
mod bounds;
mod encryption;
mod jobs;
mod keys;
mod timeline;
mod estimates;
mod audit;
