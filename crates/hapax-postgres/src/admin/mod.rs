//! The traits of [`hapax::admin`], one module each.
//!
//! Every operation is one transaction that also writes a line to the audit log. Lists are paginated
//! by key, and a page reads a bounded number of rows, so that a filter without matches costs no more
//! than one that matches everything.
//!
//! The relay uses only two of these functions: it polls for changed destinations
//! ([`DestinationChanges`](hapax::admin::DestinationChanges)), and runs jobs on a timer
//! ([`JobAdmin::run_job`](hapax::admin::JobAdmin::run_job)).

mod audited;
mod audit;
mod declared;
mod destinations;
mod events;
mod estimate;
mod filters;
mod pagination;
mod partitions;
mod deliveries;
mod dead_letters;
mod retry;
mod jobs;
mod run;
mod seen;
mod batch;
mod sagas;
mod keys;
mod purge;
mod decide_key;
mod inbox;
mod feeds;
mod polling;
mod endpoints;
mod endpoint_overview;
mod unsent;
mod timeline;
mod stalled;
mod overview;

pub use feeds::FeedStatus;
