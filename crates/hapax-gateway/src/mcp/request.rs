//! Request `tools/call`: its key, its tool, and what belongs to its fingerprint.
//!
//! The fingerprint leaves out what may differ between attempts of one call: the JSON-RPC id, and
//! `_meta` with its progress token and trace context. Names that differ from a member of JSON-RPC
//! only in case are refused, because readers that ignore case would see another method than the
//! gateway.

use std::fmt;

use hapax::key::{IdempotencyKey, KeyError};
use serde_json::value::RawValue;

use super::{
    members::{Members, elements, is_too_deep, quoted},
    response::RequestId,
    settings::McpSettings,
};

/// The first protocol version without batches.
const WITHOUT_BATCHES: &str = "2025-06-18";
/// The version that a server assumes if a request has no `MCP-Protocol-Version` header.
const ASSUMED: &str = "2025-03-26";
/// The method whose requests are protected.
const METHOD: &str = "tools/call";
/// Maximum length of the name of a tool in bytes.
const TOOL_BYTES_MAX: usize = 200;
/// The members of JSON-RPC requests and responses.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
/// The members of the parameters of a call.
const PARAMS: [&str; 3] = ["name", "arguments", "_meta"];
/// The code of the JSON-RPC error for a text that is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The code for JSON that is not a valid message.
pub const INVALID_REQUEST: i32 = -32600;
/// The code for a message whose parameters are not valid.
pub const INVALID_PARAMS: i32 = -32602;

/// The kind of a body.
#[derive(Debug)]
pub enum McpMessage {
    /// A call of a tool.
    ToolCall(ToolCall),
    /// Anything else, which passes as it is.
    Other,
}

/// A request `tools/call`.
pub struct ToolCall {
    /// The id of the request.
    pub id: RequestId,
    /// The name of the tool.
    pub tool: String,
    /// The key, if the call has one.
    pub key: Option<IdempotencyKey>,
    /// The part that belongs to the fingerprint, as JSON.
    pub fingerprinted: Vec<u8>,
}

impl fmt::Debug for ToolCall {
    /// Omits the arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("tool", &self.tool)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The body is not JSON.
    #[error("expected a JSON-RPC message")]
    Json,
    /// The body is nested too deeply.
    #[error("the message is nested too deeply")]
    Depth,
    /// A member occurs twice or differs from a member of JSON-RPC only in case, or `params` or
    /// `_meta` is not an object.
    #[error("the members of the message are ambiguous or of the wrong type")]
    Members,
    /// The protocol version has no batches.
    #[error("this protocol version has no batches")]
    Batch,
    /// The batch contains a call of a tool.
    #[error("a call of a tool has to be sent in a separate request")]
    CallInBatch,
    /// The call has no id, or one that is not a string or an integer.
    #[error("the id of a call has to be a string or an integer")]
    Id,
    /// The name of the tool is missing, empty, too long, or not plain text.
    #[error("the name of the tool is not valid")]
    Tool,
    /// The key is not a string, or there are two that differ.
    #[error("the idempotency key is not a string, or there are two that differ")]
    Key,
    /// The key is not a valid key.
    #[error("the idempotency key is not valid")]
    KeyForm(#[source] KeyError),
}

impl McpError {
    /// The code of the JSON-RPC error.
    pub const fn code(self) -> i32 {
        match self {
            Self::Json => PARSE_ERROR,
            Self::Depth | Self::Members | Self::Batch | Self::CallInBatch | Self::Id => {
                INVALID_REQUEST
            }
            Self::Tool | Self::Key | Self::KeyForm(_) => INVALID_PARAMS,
        }
    }
}

/// Reads the body of a POST. `version` is the `MCP-Protocol-Version` header.
///
/// # Errors
/// Fails if the body is not a message that the gateway and the server are certain to read alike.
pub fn parse(
    body: &[u8],
    version: Option<&str>,
    settings: &McpSettings,
) -> Result<McpMessage, McpError> {
    if is_too_deep(body) {
        return Err(McpError::Depth);
    }
    if let Some(messages) = elements(body) {
        return check_batch(&messages, version.unwrap_or(ASSUMED)).map(|()| McpMessage::Other);
    }
    let message = read_message(body)?;
    if message.string("method").as_deref() != Some(METHOD) {
        return Ok(McpMessage::Other);
    }
    read_call(&message, settings).map(McpMessage::ToolCall)
}

/// The id of a message that is refused, if the message has one that can be returned.
pub fn id_of(body: &[u8]) -> Option<RequestId> {
    if is_too_deep(body) {
        return None;
    }
    RequestId::parse(Members::parse(body)?.get("id")?)
}

fn check_batch(messages: &[&RawValue], version: &str) -> Result<(), McpError> {
    // Versions are dates, so their order is the order of their texts.
    if version >= WITHOUT_BATCHES {
        return Err(McpError::Batch);
    }
    for message in messages {
        let message = read_message(message.get().as_bytes())?;
        if message.string("method").as_deref() == Some(METHOD) {
            return Err(McpError::CallInBatch);
        }
    }
    Ok(())
}

/// Parses one message. Its members have the names of JSON-RPC, or others that no reader could take
/// for one.
fn read_message(text: &[u8]) -> Result<Members<'_>, McpError> {
    let Some(members) = Members::parse(text) else {
        let is_json = serde_json::from_slice::<&RawValue>(text).is_ok();
        let error = if is_json {
            McpError::Members
        } else {
            McpError::Json
        };
        return Err(error);
    };
    if members.has_similar(&MEMBERS) {
        return Err(McpError::Members);
    }
    // A method that is not plain text is compared in different ways by different readers.
    if members.get("method").is_some() && members.string("method").is_none() {
        return Err(McpError::Members);
    }
    Ok(members)
}

fn read_call(message: &Members<'_>, settings: &McpSettings) -> Result<ToolCall, McpError> {
    let id = message.get("id").and_then(RequestId::parse);
    let id = id.ok_or(McpError::Id)?;
    let params = message.get("params").ok_or(McpError::Tool)?;
    let params = Members::parse(params.as_bytes()).ok_or(McpError::Members)?;
    if params.has_similar(&PARAMS) {
        return Err(McpError::Members);
    }
    let tool = params.string("name").ok_or(McpError::Tool)?;
    let is_long = tool.len() > TOOL_BYTES_MAX;
    if tool.is_empty() || is_long || tool.chars().any(char::is_control) {
        return Err(McpError::Tool);
    }
    let meta = match params.get("_meta") {
        None => None,
        Some(meta) => Some(Members::parse(meta.as_bytes()).ok_or(McpError::Members)?),
    };
    let key = match &meta {
        None => None,
        Some(meta) => read_key(meta, settings)?,
    };
    Ok(ToolCall {
        id,
        tool,
        key,
        fingerprinted: fingerprinted(&params),
    })
}

fn read_key(
    meta: &Members<'_>,
    settings: &McpSettings,
) -> Result<Option<IdempotencyKey>, McpError> {
    let mut found: Option<String> = None;
    for name in &settings.keys {
        if meta.get(name).is_none() {
            continue;
        }
        let key = meta.string(name).ok_or(McpError::Key)?;
        if found.as_ref().is_some_and(|other| *other != key) {
            return Err(McpError::Key);
        }
        found = Some(key);
    }
    found
        .map(|key| IdempotencyKey::new(key).map_err(McpError::KeyForm))
        .transpose()
}

/// The method and the parameters without `_meta`. Values are as they were sent; the order of members
/// is kept, and a canonical form may be made of the result.
fn fingerprinted(params: &Members<'_>) -> Vec<u8> {
    let params = params.iter().filter(|(name, _)| *name != "_meta");
    let params: Vec<String> = params
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    let (method, params) = (quoted(METHOD), params.join(","));
    format!("{{\"method\":{method},\"params\":{{{params}}}}}").into_bytes()
}

#[cfg(test)]
mod tests;
