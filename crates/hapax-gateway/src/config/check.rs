//! Checks of the configuration that the types do not make.
//!
//! The first error is returned with the path of the setting, such as `gateway.routes.orders.path`. A
//! configuration with an error is refused as a whole.

use std::time::Duration;

use hapax::{
    key::Operation,
    limits::{RESPONSE_BYTES_MAX, RETENTION_MAX},
};
use hapax_http::{FingerprintMode, Profile};
use hapax_runtime::config::{Wrong, did_you_mean};
use http::{HeaderName, Method, StatusCode, Uri, uri::Scheme};

use super::{ForwardedKey, KeyRule, Listener, OnUnknown, Route, RouteProtocol, Settings, Upstream};
use crate::routes::{HostRule, Pattern, Rule};

/// Longest name of a service, as in `hapax-http`.
const SERVICE_BYTES_MAX: usize = 64;
/// The length of the longer one of the methods that an operation always has.
const PATCH_BYTES: usize = "PATCH".len();
/// The longest time for the response to a protected request, during which its key is owned.
const TIMEOUT_MAX: Duration = Duration::from_hours(1);
/// Longest method that is accepted in a configuration.
const METHOD_BYTES_MAX: usize = 32;

impl Settings {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn check(&self) -> Result<(), Wrong> {
        let at = |name: &str, problem: String| Err(Wrong::at(format!("gateway.{name}"), problem));
        let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let length = self.service.len();
        if !(1..=SERVICE_BYTES_MAX).contains(&length) || !self.service.chars().all(is_named) {
            let problem = "expected 1 to 64 letters, digits, '-', '.' and '_'";
            return at("service", problem.to_owned());
        }
        if let Err(problem) = self.tenant.check() {
            return at("tenant", problem);
        }
        if self.connections == 0 {
            return at("connections", "must be at least 1".to_owned());
        }
        if self.lease.0.is_zero() {
            return at("lease", "must be longer than 0s".to_owned());
        }
        for (name, listener) in &self.listeners {
            listener
                .check()
                .map_err(|(field, problem)| wrong("listeners", name, field, problem))?;
        }
        for (name, upstream) in &self.upstreams {
            upstream
                .check()
                .map_err(|(field, problem)| wrong("upstreams", name, field, problem))?;
        }
        if let Err(error) = self.ingest.build() {
            return at(&format!("ingest.{}", error.setting), error.problem);
        }
        for (name, route) in &self.routes {
            self.check_route(route)
                .map_err(|(field, problem)| wrong("routes", name, field, problem))?;
        }
        self.check_ties()
    }

    fn check_route(&self, route: &Route) -> Result<(), Bad> {
        if !self.upstreams.contains_key(&route.upstream) {
            let name = &route.upstream;
            let near = did_you_mean(name, self.upstreams.keys().map(String::as_str));
            let problem = format!("names the upstream {name:?}, which does not exist{near}");
            return Err(("upstream", problem));
        }
        route.rule()?;
        if route.lease.is_some() {
            return Err((
                "lease",
                "is a setting of [gateway], for all routes".to_owned(),
            ));
        }
        let field = route.check_operation()?;
        let longest = route.protected_methods()?;
        let longest = longest.iter().map(|it| it.as_str().len()).max();
        let template = route.template();
        let bytes =
            self.service.len() + 1 + longest.unwrap_or(0).max(PATCH_BYTES) + 1 + template.len();
        if Operation::new("x".repeat(bytes)).is_err() {
            return Err((field, "is too long for the name of an operation".to_owned()));
        }
        let tenant = route.tenant.as_ref().unwrap_or(&self.tenant);
        if route.credential.is_some() && !tenant.has_credential() {
            let problem = "has an effect only with a tenant from jwt, api_keys or certificate";
            return Err(("credential", problem.to_owned()));
        }
        route.check()
    }

    /// Refuses two routes that match the same requests and are equally specific.
    fn check_ties(&self) -> Result<(), Wrong> {
        let mut seen: Vec<(&str, Rule)> = Vec::new();
        for (name, route) in &self.routes {
            let rule = route
                .rule()
                .map_err(|(field, problem)| wrong("routes", name, field, problem))?;
            if let Some((other, _)) = seen.iter().find(|(_, other)| rule.ties_with(other)) {
                let problem = format!("matches the same requests as the route {other:?}");
                return Err(wrong("routes", name, "path", problem));
            }
            seen.push((name, rule));
        }
        Ok(())
    }
}

/// A field that is not valid, and what is wrong with it.
type Bad = (&'static str, String);

fn wrong(section: &str, name: &str, field: &str, problem: String) -> Wrong {
    Wrong::at(format!("gateway.{section}.{name}.{field}"), problem)
}

impl Listener {
    fn check(&self) -> Result<(), Bad> {
        let proxies = self.proxy_protocol.as_ref();
        if proxies.is_some_and(|proxies| proxies.from.is_empty()) {
            let problem = "must name the addresses of the proxies, such as [\"10.0.0.0/8\"]";
            return Err(("proxy_protocol.from", problem.to_owned()));
        }
        Ok(())
    }
}

impl Upstream {
    fn check(&self) -> Result<(), Bad> {
        if self.instances.is_empty() {
            return Err(("instances", "must name at least one instance".to_owned()));
        }
        for instance in &self.instances {
            parse_instance(instance).map_err(|problem| ("instances", problem))?;
        }
        if self.concurrency == 0 {
            return Err(("concurrency", "must be at least 1".to_owned()));
        }
        if self.tenant_concurrency == Some(0) {
            return Err(("tenant_concurrency", "must be at least 1".to_owned()));
        }
        for (field, rate) in [
            ("rate.per", &self.rate),
            ("tenant_rate.per", &self.tenant_rate),
        ] {
            if rate.is_some_and(|rate| rate.per.0.is_zero()) {
                return Err((field, "must be longer than 0s".to_owned()));
            }
        }
        if self.health_every.0.is_zero() {
            return Err(("health_every", "must be longer than 0s".to_owned()));
        }
        let path = self.health_path.as_deref();
        if path.is_some_and(|path| !path.starts_with('/') || path.parse::<Uri>().is_err()) {
            let problem = "expected a path such as \"/health\"";
            return Err(("health_path", problem.to_owned()));
        }
        Ok(())
    }
}

/// Parses an instance: a URL with scheme and host, and nothing else.
pub(crate) fn parse_instance(text: &str) -> Result<Uri, String> {
    let expected = || format!("expected a URL such as \"http://10.0.0.7:8000\", got {text:?}");
    let uri: Uri = text.parse().map_err(|_| expected())?;
    let is_http = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    let has_user = uri.authority().is_none_or(|it| it.as_str().contains('@'));
    if !is_http || has_user || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(expected());
    }
    Ok(uri)
}

impl Route {
    /// The requests that the route matches.
    pub(crate) fn rule(&self) -> Result<Rule, Bad> {
        Ok(Rule {
            host: HostRule::parse(self.host.as_deref()).map_err(|problem| ("host", problem))?,
            path: Pattern::parse(&self.path).map_err(|problem| ("path", problem))?,
            methods: methods("methods", &self.methods)?,
        })
    }

    /// The methods that are protected.
    pub(crate) fn protected_methods(&self) -> Result<Vec<Method>, Bad> {
        methods("protect", &self.protect)
    }

    /// The route in the name of its operations.
    pub(crate) fn template(&self) -> String {
        let written = || format!("{}{}", self.host.as_deref().unwrap_or_default(), self.path);
        self.operation.clone().unwrap_or_else(written)
    }

    /// Checks the name of the operation, and returns the setting that it comes from.
    fn check_operation(&self) -> Result<&'static str, Bad> {
        let Some(name) = &self.operation else {
            return Ok("path");
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let problem = "expected a name such as \"/orders/{id}\", of visible ASCII characters";
            return Err(("operation", format!("{problem}, got {name:?}")));
        }
        Ok("operation")
    }

    /// The protocol of the clients.
    pub(crate) fn parsed_profile(&self) -> Result<Profile, Bad> {
        named("profile", &self.profile, &Profile::ALL, Profile::as_str)
    }

    /// How bodies are compared, if the route says so.
    pub(crate) fn parsed_fingerprint(&self) -> Result<Option<FingerprintMode>, Bad> {
        let all = &FingerprintMode::ALL;
        let parse = |text: &String| named("fingerprint", text, all, FingerprintMode::as_str);
        self.fingerprint.as_ref().map(parse).transpose()
    }

    fn check(&self) -> Result<(), Bad> {
        let _valid = self.parsed_fingerprint()?;
        if self.parsed_profile()? == Profile::Acp && self.key == KeyRule::Optional {
            let problem = "must be \"required\" for the profile acp, which demands a key";
            return Err(("key", problem.to_owned()));
        }
        self.check_protocol()?;
        if let Some(tenant) = &self.tenant {
            tenant.check().map_err(|problem| ("tenant", problem))?;
        }
        if self.response_max > RESPONSE_BYTES_MAX {
            return Err((
                "response_max",
                format!("must be at most {RESPONSE_BYTES_MAX}"),
            ));
        }
        if self.timeout.0.is_zero() || self.timeout.0 > TIMEOUT_MAX {
            return Err((
                "timeout",
                "must be longer than 0s and at most 1h".to_owned(),
            ));
        }
        if self
            .retention
            .is_some_and(|it| it.0 > RETENTION_MAX || it.0.is_zero())
        {
            return Err((
                "retention",
                "must be longer than 0s and at most 30d".to_owned(),
            ));
        }
        check_statuses("nothing_happened", &self.nothing_happened, 400..=599)?;
        match (&self.look_up, self.unknown) {
            (None, OnUnknown::LookUp) => {
                return Err(("look_up", "is required by unknown = \"look_up\"".to_owned()));
            }
            (Some(_), OnUnknown::Conflict | OnUnknown::Forward) => {
                let problem = "has an effect only with unknown = \"look_up\"";
                return Err(("look_up", problem.to_owned()));
            }
            (Some(look_up), OnUnknown::LookUp) => look_up.check()?,
            (None, _) => {}
        }
        Ok(())
    }
}

impl Route {
    /// Refuses settings that have no meaning with the protocol.
    fn check_protocol(&self) -> Result<(), Bad> {
        if self.protocol == RouteProtocol::Http {
            if self.mcp.is_default() {
                return Ok(());
            }
            let problem = "has an effect only with protocol = \"mcp\"";
            return Err(("mcp", problem.to_owned()));
        }
        let refused =
            |field, problem: &str| Err((field, format!("{problem} with protocol = \"mcp\"")));
        if !self.protect.iter().any(|method| method == "POST") {
            return refused("protect", "must contain \"POST\"");
        }
        if self.profile != Profile::Hapax.as_str() {
            return refused("profile", "must be \"hapax\"");
        }
        // The response to a look-up is not a JSON-RPC response.
        if self.unknown == OnUnknown::LookUp {
            return refused("unknown", "must be \"conflict\" or \"forward\"");
        }
        // The server receives the message of the client, with its key.
        if self.forwarded_key == ForwardedKey::Derived {
            return refused("forwarded_key", "must be \"same\"");
        }
        self.mcp.check()
    }
}

impl super::LookUp {
    fn check(&self) -> Result<(), Bad> {
        let sample = self.path.replace("{key}", "k");
        if !self.path.contains("{key}")
            || !sample.starts_with('/')
            || sample.parse::<Uri>().is_err()
        {
            let problem = "expected a path with {key}, such as \"/orders/by-key/{key}\"";
            return Err(("look_up.path", problem.to_owned()));
        }
        for name in self.headers.keys() {
            if name.parse::<HeaderName>().is_err() {
                return Err((
                    "look_up.headers",
                    format!("{name:?} is not the name of a header"),
                ));
            }
        }
        check_statuses("look_up.happened", &self.happened, 200..=599)?;
        check_statuses("look_up.not_happened", &self.not_happened, 200..=599)?;
        if let Some(both) = self
            .happened
            .iter()
            .find(|it| self.not_happened.contains(it))
        {
            let problem = format!("contains {both}, which is in happened too");
            return Err(("look_up.not_happened", problem));
        }
        let status = self.status.map(StatusCode::from_u16);
        if status.is_some_and(|status| status.is_err()) {
            return Err(("look_up.status", "must be a status of HTTP".to_owned()));
        }
        if self.timeout.0.is_zero() || self.timeout.0 > TIMEOUT_MAX {
            let problem = "must be longer than 0s and at most 1h";
            return Err(("look_up.timeout", problem.to_owned()));
        }
        Ok(())
    }
}

fn check_statuses(
    field: &'static str,
    statuses: &[u16],
    range: std::ops::RangeInclusive<u16>,
) -> Result<(), Bad> {
    match statuses.iter().find(|status| !range.contains(status)) {
        None => Ok(()),
        Some(other) => {
            let (first, last) = (range.start(), range.end());
            Err((
                field,
                format!("expected statuses from {first} to {last}, got {other}"),
            ))
        }
    }
}

fn methods(field: &'static str, names: &[String]) -> Result<Vec<Method>, Bad> {
    let method = |name: &String| {
        let is_upper =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        let valid = (is_upper && name.len() <= METHOD_BYTES_MAX).then_some(name);
        let method = valid.and_then(|name| Method::from_bytes(name.as_bytes()).ok());
        method.ok_or_else(|| {
            (
                field,
                format!("expected methods such as \"POST\", got {name:?}"),
            )
        })
    };
    names.iter().map(method).collect()
}

fn named<T: Copy>(
    field: &'static str,
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, Bad> {
    let known: Vec<&str> = all.iter().map(|it| name(*it)).collect();
    let found = all.iter().find(|it| name(**it) == text);
    found.copied().ok_or_else(|| {
        (
            field,
            format!("expected one of {}, got {text:?}", known.join(", ")),
        )
    })
}
