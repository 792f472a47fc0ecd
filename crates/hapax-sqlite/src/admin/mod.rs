//! The traits of [`hapax::admin`], one module each, on a handle that works beside a running store.
//!
//! A [`SqliteAdmin`] has separate connections and not the store's lock. Every operation is one
//! short transaction that also writes a line to the audit log; a list is read in one snapshot. The
//! store's writer and this handle take turns by the lock of SQLite, and neither relies on values that
//! the other may have changed. The relay of another process finds the changes when it polls.

mod handle;
mod view;
mod audited;
mod filters;
mod seen;
mod declared;
mod destinations;
mod deliveries;
mod newest;
mod dead_letters;
mod retry;
mod jobs;
mod run;
mod batch;
mod purge;
mod decide_key;
mod decide;
mod events;
mod estimate;
mod traces;
mod keys;
mod inbox;
mod sagas;
mod partitions;
mod overview;
mod stalled;
mod polling;
mod endpoints;
mod endpoint_overview;
mod unsent;
mod timeline;
mod audit;

pub use handle::SqliteAdmin;
