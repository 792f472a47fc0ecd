//! MCP (Model Context Protocol) over streamable HTTP: the calls of tools whose repetition acts
//! once.
//!
//! A client posts JSON-RPC messages. A request `tools/call` may have an idempotency key in its
//! `_meta`; this module finds the key, and what of the request belongs to its fingerprint. The
//! response may be a JSON object, or a stream of events that ends with it; the object is stored. A
//! replay has the id of the new request, because the client waits for that one; every other byte is
//! as stored. Nothing here does I/O.
//!
//! Revision 2025-06-18 has no batches. Earlier revisions have, and a batch passes unless it
//! contains a call of a tool: a batch has one response for all its requests, which cannot be stored
//! by key.

mod settings;
mod members;
mod request;
mod response;
mod stream;

pub use request::{
    INVALID_PARAMS, INVALID_REQUEST, McpError, McpMessage, PARSE_ERROR, ToolCall, id_of, parse,
};
pub use response::{
    RequestId, ResponseError, ResponseKind, check_response, error_response, replay,
};
pub use settings::{McpSettings, OnError};
pub use stream::{StreamCollector, StreamError, StreamState, event};
