//! Headers that the gateway removes or adds when it passes a message on.

mod hop_by_hop;
mod forwarded;
mod outgoing;

pub use forwarded::{Client, forwarded};
pub use hop_by_hop::{remove_hop_by_hop, upgrade_of};
pub use outgoing::{outgoing, remove_underscored};
