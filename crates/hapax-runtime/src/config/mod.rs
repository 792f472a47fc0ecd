//! Configuration layers: defaults, file, environment, flags.
//!
//! A later layer overrides an earlier one, and every value keeps its source ([`Origin`]). A program
//! converts the merged tree into its own types with [`Node::read`], or reads single nodes of it. An
//! error ([`Wrong`]) names the setting and its source, and suggests the nearest known name. It never
//! contains a value that may be a secret.

mod node;
mod read;
mod span;
mod layers;

pub use layers::{Given, Layers, variable};
pub use node::{Leaf, Node, Origin};
pub use read::{Wrong, did_you_mean};
pub use span::Span;
