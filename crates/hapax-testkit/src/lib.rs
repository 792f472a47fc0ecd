//! The law of Hapax: what every store and every sink must do.
pub mod store;
pub mod law;
pub mod http;
pub mod smtp;
pub mod events;
pub mod clock;
pub mod wait;
