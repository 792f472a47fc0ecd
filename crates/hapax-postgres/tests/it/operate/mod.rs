//! What operators do, on a real server.

mod scene;
mod destinations;
mod events;
mod deliveries;
mod jobs;
mod audit;
