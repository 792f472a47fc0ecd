//! Findings about routes and upstreams: what a configuration does not protect, or believes.
//!
//! A warning says that a retry can have a second effect, or that requests cannot be served. A note
//! may be intended.

use std::fmt;

use super::{Description, OperationProtection, Protection, operations};
use crate::{
    config::{CredentialRule, KeyRule, OnUnknown, Route, Settings},
    tenant::TenantSettings,
};

/// How important a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A retry can have a second effect, or requests cannot be served.
    Warning,
    /// It is worth knowing, and may be intended.
    Note,
}

impl Severity {
    /// The name in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How important it is.
    pub severity: Severity,
    /// The setting or the operation, such as `gateway.routes.orders` or `POST /orders`.
    pub object: String,
    /// A finding, and its remedy.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}",
            self.severity.as_str(),
            self.object,
            self.text
        )
    }
}

/// The findings about valid settings, the warnings first. With a description of the service, also
/// those about its operations.
pub fn findings(settings: &Settings, description: Option<&Description>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, route) in &settings.routes {
        let mut add = |severity, text: String| {
            found.push(Finding {
                severity,
                object: format!("gateway.routes.{name}"),
                text,
            });
        };
        of_route(settings, route, &mut add);
    }
    of_upstreams(settings, &mut found);
    of_listeners(settings, &mut found);
    if let Some(description) = description {
        let all = operations(settings, description);
        of_operations(settings, &all, &mut found);
    }
    found.sort_by_key(|it| it.severity);
    found
}

fn of_route(settings: &Settings, route: &Route, add: &mut impl FnMut(Severity, String)) {
    let is_protected = !route.protect.is_empty();
    if route.protect.iter().any(|it| it == "GET" || it == "HEAD") {
        let text = "protects GET or HEAD, which have no effect: their responses become stale";
        add(Severity::Warning, text.to_owned());
    }
    let believed = route.nothing_happened.iter();
    let believed: Vec<_> = believed
        .filter(|it| **it >= 500)
        .map(u16::to_string)
        .collect();
    if is_protected && !believed.is_empty() {
        let text = format!(
            "frees the key after {}: if the service or a proxy in front of it sends this after it \
             has acted, a retry has its effect a second time",
            believed.join(", ")
        );
        add(Severity::Warning, text);
    }
    if is_protected && route.accept_close_delimited {
        let text = "stores responses without a length: one that was cut off is replayed as if it \
                    were complete";
        add(Severity::Warning, text.to_owned());
    }
    if is_protected && route.unknown == OnUnknown::Forward {
        let text = "sends a request again although its outcome is unknown: the service has to know \
                    idempotency keys itself";
        add(Severity::Note, text.to_owned());
    }
    if is_protected && route.key == KeyRule::Optional {
        let text = "forwards requests without a key unprotected: set key = \"required\" when all \
                    clients send one";
        add(Severity::Note, text.to_owned());
    }
    let tenant = route.tenant.as_ref().unwrap_or(&settings.tenant);
    if is_protected && matches!(tenant, TenantSettings::Fixed(_)) {
        let text = "has one tenant for all clients: if two clients choose the same key, one gets \
                    the response of the other";
        add(Severity::Note, text.to_owned());
    }
    let rule = route.credential.unwrap_or(settings.credential);
    if tenant.has_credential() && rule == CredentialRule::WithKey {
        let text = "verifies the credentials of protected requests only: all other requests reach the \
                    service also without a credential";
        add(Severity::Note, text.to_owned());
    }
}

fn of_upstreams(settings: &Settings, found: &mut Vec<Finding>) {
    for (name, upstream) in &settings.upstreams {
        let mut add = |severity, text: &str| {
            found.push(Finding {
                severity,
                object: format!("gateway.upstreams.{name}"),
                text: text.to_owned(),
            });
        };
        if !settings.routes.values().any(|it| it.upstream == *name) {
            add(Severity::Warning, "is not used by any route");
        }
        if upstream.instances.len() > 1 && upstream.health_path.is_none() {
            let text = "has no health_path: an instance that accepts connections and does not \
                        respond gets requests, whose outcomes are unknown";
            add(Severity::Note, text);
        }
    }
}

fn of_listeners(settings: &Settings, found: &mut Vec<Finding>) {
    for (name, listener) in &settings.listeners {
        let mut add = |text: &str| {
            found.push(Finding {
                severity: Severity::Note,
                object: format!("gateway.listeners.{name}"),
                text: text.to_owned(),
            });
        };
        if listener.tls.is_none() && !listener.listen.ip().is_loopback() {
            add(
                "accepts connections from other machines without TLS: set tls, or put a \
                 proxy in front of it that terminates TLS",
            );
        }
        let mut proxies = listener.proxy_protocol.iter().flat_map(|it| &it.from);
        if proxies.any(|net| net.prefix_len() == 0) {
            add(
                "accepts headers of the PROXY protocol from every address, so clients can forge \
                 their address: set from to the addresses of the proxies",
            );
        }
    }
}

fn of_operations(settings: &Settings, all: &[OperationProtection], found: &mut Vec<Finding>) {
    for it in all {
        let object = format!("{} {}", it.method, it.path);
        let mut add = |severity, text: String| {
            let object = object.clone();
            found.push(Finding {
                severity,
                object,
                text,
            });
        };
        let route = it.route.as_deref().unwrap_or_default();
        let settings = settings.routes.get(route);
        let forwards = settings.is_some_and(|it| it.unknown == OnUnknown::Forward);
        match it.protection {
            Protection::NoRoute => add(Severity::Warning, "matches no route: 404".to_owned()),
            Protection::Streamed if it.is_unsafe_to_repeat() => {
                let method = &it.method;
                let text = format!("is not protected: the route {route} does not protect {method}");
                add(Severity::Warning, text);
            }
            _ if it.protection.is_protected() && forwards && !it.declares_key => {
                let text = format!(
                    "is sent again by the route {route} although its outcome is unknown, and the \
                     description does not declare the header Idempotency-Key"
                );
                add(Severity::Warning, text);
            }
            _ => {}
        }
    }
    let is_used = |name: &String| all.iter().any(|it| it.route.as_ref() == Some(name));
    for name in settings.routes.keys().filter(|name| !is_used(name)) {
        found.push(Finding {
            severity: Severity::Note,
            object: format!("gateway.routes.{name}"),
            text: "matches no operation of the description".to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Listener, ProxyProtocol, Upstream},
        tenant::api_keys::ApiKeySettings,
    };

    /// Settings without findings.
    fn quiet() -> Settings {
        let mut settings = Settings {
            tenant: TenantSettings::Header("x-account".to_owned()),
            ..Settings::default()
        };
        let mut orders = Route::new("/orders", "orders");
        orders.key = KeyRule::Required;
        settings.routes.insert("orders".to_owned(), orders);
        let upstream = Upstream::new(["http://10.0.0.7:8000"]);
        settings.upstreams.insert("orders".to_owned(), upstream);
        settings
    }

    #[test]
    fn settings_that_protect_everything_have_no_findings() {
        assert_eq!(findings(&quiet(), None), Vec::<Finding>::new());
        let description = "openapi = \"3.1.0\"\n[paths.\"/orders\".post]\n";
        let description: Description = toml::from_str(description).unwrap();
        assert_eq!(
            findings(&quiet(), Some(&description)),
            Vec::<Finding>::new()
        );
    }

    #[test]
    fn what_a_route_does_not_protect_or_believes_is_found() {
        let check = |change: fn(&mut Route), severity: Severity, expected: &str| {
            let mut settings = quiet();
            settings.routes.values_mut().for_each(change);
            let found = findings(&settings, None);
            let fits = |it: &Finding| {
                it.severity == severity
                    && it.object == "gateway.routes.orders"
                    && it.text.contains(expected)
            };
            assert!(found.len() == 1 && fits(&found[0]), "{expected}: {found:?}");
        };
        let warning = Severity::Warning;
        check(
            |it| it.protect.push("GET".to_owned()),
            warning,
            "GET or HEAD",
        );
        check(|it| it.nothing_happened.push(503), warning, "after 503");
        check(
            |it| it.accept_close_delimited = true,
            warning,
            "without a length",
        );
        let note = Severity::Note;
        check(
            |it| it.unknown = OnUnknown::Forward,
            note,
            "sends a request again",
        );
        check(|it| it.key = KeyRule::Optional, note, "without a key");
        let fixed = |it: &mut Route| it.tenant = Some(TenantSettings::default());
        check(fixed, note, "one tenant");
        let keys = |it: &mut Route| {
            it.tenant = Some(TenantSettings::ApiKeys(ApiKeySettings::default()));
            it.credential = Some(CredentialRule::WithKey);
        };
        check(keys, note, "without a credential");
    }

    #[test]
    fn a_route_that_demands_a_credential_of_every_request_has_no_finding() {
        let mut settings = quiet();
        settings.tenant = TenantSettings::ApiKeys(ApiKeySettings::default());
        assert_eq!(findings(&settings, None), Vec::<Finding>::new());
    }

    #[test]
    fn a_route_that_protects_nothing_has_no_findings_about_keys() {
        let mut settings = quiet();
        for route in settings.routes.values_mut() {
            route.protect.clear();
            route.key = KeyRule::Optional;
            route.accept_close_delimited = true;
            route.nothing_happened.push(503);
        }
        assert_eq!(findings(&settings, None), Vec::<Finding>::new());
    }

    #[test]
    fn upstreams_and_listeners_are_looked_at() {
        let mut settings = quiet();
        let two = Upstream::new(["http://10.0.0.7:8000", "http://10.0.0.8:8000"]);
        settings.upstreams.insert("unused".to_owned(), two);
        let open = Listener::new("0.0.0.0:8080".parse().unwrap());
        settings.listeners.insert("http".to_owned(), open);
        let mut local = Listener::new("127.0.0.1:8080".parse().unwrap());
        local.proxy_protocol = Some(ProxyProtocol {
            from: vec!["0.0.0.0/0".parse().unwrap()],
        });
        settings.listeners.insert("local".to_owned(), local);
        let found = findings(&settings, None);
        let objects: Vec<_> = found.iter().map(|it| it.object.as_str()).collect();
        let unused = "gateway.upstreams.unused";
        let (http, local) = ("gateway.listeners.http", "gateway.listeners.local");
        assert_eq!(objects, [unused, unused, http, local]);
        let first = "warning: gateway.upstreams.unused: is not used by any route";
        assert_eq!(found[0].to_string(), first);
    }

    #[test]
    fn operations_that_are_not_protected_are_found() {
        let description = "openapi = \"3.1.0\"\n[paths.\"/orders\".post]\n\
            [paths.\"/refunds\".post]\n[paths.\"/refunds\".get]\n[paths.\"/other\".delete]\n";
        let description: Description = toml::from_str(description).unwrap();
        let mut settings = quiet();
        let mut refunds = Route::new("/refunds", "orders");
        refunds.protect = Vec::new();
        settings.routes.insert("refunds".to_owned(), refunds);
        let unseen = Route::new("/unseen", "orders");
        settings.routes.insert("unseen".to_owned(), unseen);
        if let Some(orders) = settings.routes.get_mut("orders") {
            orders.unknown = OnUnknown::Forward;
        }
        let found = findings(&settings, Some(&description));
        let of = |object: &str| -> Vec<&str> {
            let own = found.iter().filter(|it| it.object == object);
            own.map(|it| it.text.as_str()).collect()
        };
        assert!(of("POST /refunds")[0].contains("does not protect POST"));
        assert_eq!(of("GET /refunds"), Vec::<&str>::new());
        assert!(of("DELETE /other")[0].contains("no route"));
        assert!(of("POST /orders")[0].contains("does not declare"));
        let unseen = of("gateway.routes.unseen");
        assert!(unseen.contains(&"matches no operation of the description"));
    }
}
