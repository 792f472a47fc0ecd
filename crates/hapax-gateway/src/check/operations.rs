//! Which operations of a service are protected, and by which route.
//!
//! A path with parameters is looked up with a sample for each parameter. A route for one particular
//! value, such as `/orders/new` beside `/orders/{id}`, is therefore not seen.

use http::Method;

use super::Description;
use crate::{
    config::{KeyRule, Route, Settings},
    routes::RouteTable,
};

/// The value of every parameter.
const SAMPLE: &str = "hapax-sample";

/// How an operation is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Every request needs a key.
    Required,
    /// Requests with a key are protected. Others stream through.
    Optional,
    /// The route does not protect this method.
    Streamed,
    /// No route matches: clients get 404.
    NoRoute,
}

impl Protection {
    /// The name in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Streamed => "streamed",
            Self::NoRoute => "no route",
        }
    }

    /// Whether a retry with a key is safe.
    pub const fn is_protected(self) -> bool {
        matches!(self, Self::Required | Self::Optional)
    }
}

/// An operation of the description, and what the gateway does with its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationProtection {
    /// The method.
    pub method: Method,
    /// The path, with the base path of the service.
    pub path: String,
    /// The id of the operation.
    pub id: Option<String>,
    /// The name of the route that matches.
    pub route: Option<String>,
    /// How it is protected.
    pub protection: Protection,
    /// Whether the service declares the header `Idempotency-Key` itself.
    pub declares_key: bool,
}

impl OperationProtection {
    /// Whether a repeated request can have a second effect: POST and PATCH are not idempotent.
    pub fn is_unsafe_to_repeat(&self) -> bool {
        [Method::POST, Method::PATCH].contains(&self.method)
    }
}

/// The operations of a description, by path and method. Routes that are not valid match nothing.
pub fn operations(settings: &Settings, description: &Description) -> Vec<OperationProtection> {
    let rules = settings.routes.iter();
    let rules = rules.filter_map(|(name, route)| Some((route.rule().ok()?, (name, route))));
    let table = RouteTable::new(rules);
    let (host, base) = description.base();
    let mut all = Vec::new();
    for (template, item) in &description.paths {
        let path = format!("{base}{template}");
        for (method, operation) in item.operations() {
            let found = table.find(host, &sample(&path), &method);
            let protection = found.map_or(Protection::NoRoute, |(_, route)| of(route, &method));
            all.push(OperationProtection {
                path: path.clone(),
                id: operation.id.clone(),
                route: found.map(|(name, _)| (*name).clone()),
                protection,
                declares_key: item.declares_key(operation),
                method,
            });
        }
    }
    all
}

fn of(route: &Route, method: &Method) -> Protection {
    let is_protected = route.protect.iter().any(|it| it == method.as_str());
    match (is_protected, route.key) {
        (false, _) => Protection::Streamed,
        (true, KeyRule::Required) => Protection::Required,
        (true, KeyRule::Optional) => Protection::Optional,
    }
}

/// A path of a template: `/orders/{id}` becomes `/orders/hapax-sample`.
fn sample(template: &str) -> String {
    let mut path = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, behind)) = after.split_once('}') else {
            break;
        };
        path.push_str(before);
        path.push_str(SAMPLE);
        rest = behind;
    }
    path + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: &str = r#"
        openapi = "3.1.0"
        servers = [{ url = "https://api.example.com/v1" }]
        [paths."/orders".post]
        operationId = "placeOrder"
        parameters = [{ name = "Idempotency-Key", in = "header", schema = { type = "string" } }]
        [paths."/orders".get]
        [paths."/orders/{id}".patch]
        [paths."/orders/{id}/lines".post]
        [paths."/health".get]
    "#;

    #[test]
    fn every_operation_has_the_protection_of_its_route() {
        let mut settings = Settings::default();
        let mut orders = Route::new("/v1/orders", "orders");
        orders.key = KeyRule::Required;
        settings.routes.insert("orders".to_owned(), orders);
        let order = Route::new("/v1/orders/{id}", "orders");
        settings.routes.insert("order".to_owned(), order);
        let mut lines = Route::new("/v1/orders/{id}/{*rest}", "orders");
        lines.protect = Vec::new();
        settings.routes.insert("lines".to_owned(), lines);
        let description: Description = toml::from_str(ORDERS).unwrap();
        let found = operations(&settings, &description);
        let short = found.iter().map(|it| {
            let route = it.route.as_deref().unwrap_or_default();
            (it.method.as_str(), it.path.as_str(), route, it.protection)
        });
        assert_eq!(
            short.collect::<Vec<_>>(),
            [
                ("GET", "/v1/health", "", Protection::NoRoute),
                ("GET", "/v1/orders", "orders", Protection::Streamed),
                ("POST", "/v1/orders", "orders", Protection::Required),
                ("PATCH", "/v1/orders/{id}", "order", Protection::Optional),
                (
                    "POST",
                    "/v1/orders/{id}/lines",
                    "lines",
                    Protection::Streamed
                ),
            ]
        );
        let declared: Vec<_> = found.iter().filter(|it| it.declares_key).collect();
        assert_eq!(declared.len(), 1);
        assert_eq!(declared[0].id.as_deref(), Some("placeOrder"));
    }

    #[test]
    fn a_route_of_another_host_does_not_protect() {
        let mut settings = Settings::default();
        let mut orders = Route::new("/{*path}", "orders");
        orders.host = Some("other.example.com".to_owned());
        settings.routes.insert("orders".to_owned(), orders);
        let description: Description = toml::from_str(ORDERS).unwrap();
        let found = operations(&settings, &description);
        assert!(found.iter().all(|it| it.protection == Protection::NoRoute));
    }

    #[test]
    fn every_parameter_has_a_sample() {
        assert_eq!(
            sample("/a/{b}/c/{d}.json"),
            format!("/a/{SAMPLE}/c/{SAMPLE}.json")
        );
        assert_eq!(sample("/a/{b"), "/a/{b");
    }
}
