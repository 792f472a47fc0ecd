//! The relay carries events from the outbox to their destinations.

pub mod wake;
