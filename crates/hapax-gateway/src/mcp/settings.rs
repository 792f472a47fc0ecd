//! Settings of a route with calls of tools.

use serde::{Deserialize, Serialize};

/// Members of `_meta` that belong to one attempt, so they cannot contain the key of a call.
const OF_THE_ATTEMPT: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];
/// The error `URLElicitationRequired` of MCP: the server asks the user for something before it runs
/// the tool.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// How the calls of tools are protected.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSettings {
    /// The members of `_meta` that may contain the key. A call that has two of them with different
    /// values is refused.
    pub keys: Vec<String>,
    /// What happens to the key if the response is a JSON-RPC error.
    pub errors: OnError,
    /// Codes of JSON-RPC errors after which the tool has not run. The key is released.
    pub nothing_happened: Vec<i64>,
}

/// The treatment of a JSON-RPC error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It is stored like a result.
    #[default]
    Store,
    /// The outcome is unknown.
    Unknown,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            keys: vec![
                "io.hapax/idempotency-key".to_owned(),
                "idempotencyKey".to_owned(),
            ],
            errors: OnError::default(),
            nothing_happened: vec![URL_ELICITATION_REQUIRED],
        }
    }
}

impl McpSettings {
    /// Whether no setting was changed.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The setting that is not valid, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.keys.is_empty() {
            return Err(("mcp.keys", "must name at least one member".to_owned()));
        }
        let is_wrong = |name: &&String| name.is_empty() || OF_THE_ATTEMPT.contains(&name.as_str());
        match self.keys.iter().find(is_wrong) {
            None => Ok(()),
            Some(name) => Err((
                "mcp.keys",
                format!("expected members such as \"idempotencyKey\", got {name:?}"),
            )),
        }
    }
}
