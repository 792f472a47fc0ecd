//! Routes with `protocol = "mcp"`: calls of tools whose repetition acts once.

mod fixture;
mod calls;
mod unknown;
mod streams;
mod messages;
mod reload;
