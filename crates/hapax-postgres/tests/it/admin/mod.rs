//! Operators' functions of the store, on a real server.

mod scene;
mod destinations;
mod events;
mod deliveries;
mod jobs;
mod sagas;
mod keys;
mod inbox;
mod timeline;
mod stalled;
mod audit;
