//! `[gateway.routes.NAME]`: which requests go to which upstream, and how they are protected.

use std::{collections::BTreeMap, time::Duration};

use hapax::limits::{BODY_BYTES_MAX, JSON_BYTES_MAX, RESPONSE_BYTES_MAX};
use hapax_runtime::config::Span;
use hapax_sinks::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::{mcp::McpSettings, tenant::TenantSettings};

/// Statuses after which the service has not acted on the request, by their definition: 401, 407, 421
/// and 425 in RFC 9110 and RFC 8470, 429 in RFC 6585.
const NOTHING_HAPPENED: [u16; 5] = [401, 407, 421, 425, 429];

/// A route.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The host, such as `api.example.com` or `*.example.com`. Without it, the route matches every
    /// host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path, with parameters such as `/orders/{id}` and `/files/{*rest}`.
    pub path: String,
    /// The methods. Without them, the route matches every method.
    #[serde(default)]
    pub methods: Vec<String>,
    /// The name of the upstream.
    pub upstream: String,
    /// The name in the operations of the route, in place of host and path. It keeps the keys if host or
    /// path change, or if another route takes some of the requests. Several routes may have the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// How clients name a key: in a header of HTTP, or in a message of MCP.
    #[serde(default)]
    pub protocol: RouteProtocol,
    /// How the calls of tools are protected with `protocol = "mcp"`.
    #[serde(default, skip_serializing_if = "McpSettings::is_default")]
    pub mcp: McpSettings,
    /// The methods that are protected. All other requests of the route stream through.
    #[serde(default = "protect")]
    pub protect: Vec<String>,
    /// What happens to a request of a protected method without a key.
    #[serde(default)]
    pub key: KeyRule,
    /// The tenant; without it, that of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantSettings>,
    /// Which requests have to present a valid credential; without it, those that the gateway says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialRule>,
    /// The protocol of the clients, such as `hapax`, `ietf` or `stripe`.
    #[serde(default = "profile")]
    pub profile: String,
    /// How bodies are compared: `raw`, `json` or `json-semantic`. Without it, the profile decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The maximum length of the body of a protected request, in bytes. With `protocol = "mcp"`, it
    /// is that of every POST.
    #[serde(default = "body_max")]
    pub body_max: u64,
    /// The maximum length of a JSON body of a protected request, in bytes; with `protocol = "mcp"`
    /// of every POST.
    #[serde(default = "json_max")]
    pub json_max: u64,
    /// The maximum length of the response to a protected request, in bytes.
    #[serde(default = "response_max")]
    pub response_max: usize,
    /// How long the complete response to a protected request may take. For another request, how long
    /// its body may make no progress, and how long after its end the head of the response may take.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// How long a duplicate waits for the first request; without it, as long as the gateway says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// How long responses are kept; without it, as long as the gateway says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Span>,
    /// A setting of the gateway: the keys of all routes have the same lease. A route with it is refused.
    #[serde(default, skip_serializing)]
    pub(super) lease: Option<Span>,
    /// The treatment of a retry if the outcome of the first request is unknown.
    #[serde(default)]
    pub unknown: OnUnknown,
    /// The key that the service receives.
    #[serde(default)]
    pub forwarded_key: ForwardedKey,
    /// The request that finds out what has happened. It is required by `unknown = "look_up"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_up: Option<LookUp>,
    /// Statuses after which the service has not acted on the request. The key is released.
    #[serde(default = "nothing_happened")]
    pub nothing_happened: Vec<u16>,
    /// What happens to the headers of a request whose names contain an underscore.
    #[serde(default)]
    pub underscores: Underscores,
    /// Whether a response without a length, which ends with its connection, counts as complete.
    #[serde(default)]
    pub accept_close_delimited: bool,
}

impl Route {
    /// Creates a route with the default settings.
    pub fn new(path: impl Into<String>, upstream: impl Into<String>) -> Self {
        Self {
            host: None,
            path: path.into(),
            methods: Vec::new(),
            upstream: upstream.into(),
            operation: None,
            protocol: RouteProtocol::default(),
            mcp: McpSettings::default(),
            protect: protect(),
            key: KeyRule::default(),
            tenant: None,
            credential: None,
            profile: profile(),
            fingerprint: None,
            body_max: body_max(),
            json_max: json_max(),
            response_max: response_max(),
            timeout: timeout(),
            wait: None,
            retention: None,
            lease: None,
            unknown: OnUnknown::default(),
            forwarded_key: ForwardedKey::default(),
            look_up: None,
            nothing_happened: nothing_happened(),
            underscores: Underscores::default(),
            accept_close_delimited: false,
        }
    }
}

/// How clients name the key of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteProtocol {
    /// In the header `Idempotency-Key`.
    #[default]
    Http,
    /// In `_meta` of a JSON-RPC message `tools/call` of MCP.
    Mcp,
}

/// What happens to a request of a protected method without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRule {
    /// It streams through without protection.
    #[default]
    Optional,
    /// It is refused.
    Required,
}

/// Which requests have to present a valid credential if the tenant comes from a token, an API key or a
/// client certificate. With another source there is no credential, and this has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialRule {
    /// Every request of the route.
    #[default]
    Always,
    /// Protected requests. All others reach the service also without a credential.
    WithKey,
}

/// What happens to the headers of a request whose names contain an underscore. Services whose interface is
/// like CGI, such as WSGI and PHP, cannot tell `x_tenant` from `X-Tenant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Underscores {
    /// They are removed, except for a header that names the tenant.
    #[default]
    Drop,
    /// They are passed to the service.
    Pass,
}

/// The treatment of a retry if the outcome of the first request is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// 409, until an operator has decided.
    #[default]
    Conflict,
    /// It is sent to the service again, because the service knows idempotency keys itself.
    Forward,
    /// The gateway asks the service what has happened.
    LookUp,
}

/// The key that the service receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardedKey {
    /// The key of the client.
    #[default]
    Same,
    /// A key derived from tenant, operation, key and payload, in the form of a UUID.
    Derived,
}

/// The request that finds out what has happened to an earlier one.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LookUp {
    /// The method.
    #[serde(default)]
    pub method: LookUpMethod,
    /// The path with query, in which `{key}` is replaced by the percent-encoded key that the service
    /// has received. A key that it has received in quotation marks is looked up with and without them.
    pub path: String,
    /// Headers, such as `authorization`. The client's own headers are not sent.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Statuses that say that the request has happened. The response is stored as its response.
    #[serde(default = "happened")]
    pub happened: Vec<u16>,
    /// Statuses that say that it has not happened.
    #[serde(default = "not_happened")]
    pub not_happened: Vec<u16>,
    /// The status of the stored response; without it, that of the look-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the service may still act on a request, counted from when the gateway has found out
    /// that there is no response. Before that, `not happened` counts as unknown.
    #[serde(default = "settle")]
    pub settle: Span,
    /// How long the look-up may take.
    #[serde(default = "look_up_timeout")]
    pub timeout: Span,
}

/// The method of a look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LookUpMethod {
    /// GET.
    #[default]
    Get,
    /// POST without a body.
    Post,
}

fn protect() -> Vec<String> {
    vec!["POST".to_owned(), "PATCH".to_owned()]
}

fn profile() -> String {
    "hapax".to_owned()
}

fn body_max() -> u64 {
    BODY_BYTES_MAX
}

fn json_max() -> u64 {
    JSON_BYTES_MAX
}

fn response_max() -> usize {
    RESPONSE_BYTES_MAX
}

fn timeout() -> Span {
    Span(Duration::from_secs(30))
}

fn nothing_happened() -> Vec<u16> {
    NOTHING_HAPPENED.to_vec()
}

fn happened() -> Vec<u16> {
    vec![200, 201]
}

fn not_happened() -> Vec<u16> {
    vec![404]
}

fn settle() -> Span {
    Span(Duration::from_mins(1))
}

fn look_up_timeout() -> Span {
    Span(Duration::from_secs(5))
}
