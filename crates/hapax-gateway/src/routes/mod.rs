//! Route table: finds the route of a request by host, path and method.
//!
//! The most specific route that matches wins; the order in the configuration does not matter. Hosts
//! are compared first (exact, then `*.`, then any), then paths, segment by segment (literal, then
//! parameter, then rest), then methods (listed, then any). A route of another method does not hide a
//! less specific one. Two routes that would tie are refused when the configuration is checked.

mod host;
mod pattern;

use http::Method;

pub(crate) use host::HostRule;
pub(crate) use pattern::Pattern;

/// The requests that a route matches.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) host: HostRule,
    pub(crate) path: Pattern,
    /// The methods; any if empty.
    pub(crate) methods: Vec<Method>,
}

impl Rule {
    /// Whether no request order decides between the two: they are equally specific and can match
    /// the same request.
    pub(crate) fn ties_with(&self, other: &Self) -> bool {
        let is_any = (self.methods.is_empty(), other.methods.is_empty());
        let overlap = match is_any {
            (true, true) => true,
            (false, false) => self.methods.iter().any(|it| other.methods.contains(it)),
            _ => false,
        };
        overlap && self.host == other.host && self.path.matches_like(&other.path)
    }

    fn matches(&self, host: &str, segments: &[&str], method: &Method) -> bool {
        let is_method = self.methods.is_empty() || self.methods.contains(method);
        is_method && self.host.matches(host) && self.path.matches(segments)
    }
}

/// The routes, the most specific first.
#[derive(Clone, Debug)]
pub(crate) struct RouteTable<T>(Vec<(Rule, T)>);

impl<T> RouteTable<T> {
    pub(crate) fn new(routes: impl IntoIterator<Item = (Rule, T)>) -> Self {
        let mut routes: Vec<_> = routes.into_iter().collect();
        let key = |rule: &Rule| (rule.host.clone(), rule.path.rank(), rule.methods.is_empty());
        routes.sort_by_cached_key(|(rule, _)| key(rule));
        Self(routes)
    }

    /// Returns the route of a request.
    pub(crate) fn find(&self, host: &str, path: &str, method: &Method) -> Option<&T> {
        let path = pattern::decoded(path);
        let segments: Vec<&str> = pattern::segments(&path).collect();
        let host = host.to_ascii_lowercase();
        let mut routes = self.0.iter();
        let found = routes.find(|(rule, _)| rule.matches(&host, &segments, method));
        found.map(|(_, route)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_route_wins_whatever_the_order() {
        let written = [
            ("", "/{*path}", "any"),
            ("", "/orders", "exact"),
            ("", "/orders/{id}", "parameter"),
            ("", "/orders/new", "literal"),
            ("", "/orders/{*rest}", "rest"),
            ("*.example.com", "/{*path}", "wildcard"),
            ("api.example.com", "/{*path}", "host"),
        ];
        for routes in [written.to_vec(), written.into_iter().rev().collect()] {
            let table = table(&routes);
            let find = |host, path| table.find(host, path, &Method::POST).copied();
            assert_eq!(find("x", "/orders"), Some("exact"));
            assert_eq!(find("x", "/orders/7"), Some("parameter"));
            assert_eq!(find("x", "/orders/new"), Some("literal"));
            assert_eq!(find("x", "/orders/%6Eew"), Some("literal"));
            assert_eq!(find("x", "/orders/7/lines"), Some("rest"));
            assert_eq!(find("x", "/"), Some("any"));
            assert_eq!(find("a.EXAMPLE.com", "/orders"), Some("wildcard"));
            assert_eq!(find("api.example.com", "/orders"), Some("host"));
            assert_eq!(find("example.com", "/orders"), Some("exact"));
        }
    }

    #[test]
    fn a_route_of_another_method_does_not_hide_a_less_specific_one() {
        let mut exact = rule("", "/orders");
        exact.methods = vec![Method::POST];
        let table = RouteTable::new([(exact, "exact"), (rule("", "/{*path}"), "any")]);
        assert_eq!(table.find("x", "/orders", &Method::GET), Some(&"any"));
        assert_eq!(table.find("x", "/orders", &Method::POST), Some(&"exact"));
    }

    #[test]
    fn routes_that_differ_in_the_names_of_parameters_only_tie() {
        let (one, two) = (rule("", "/a/{id}"), rule("", "/a/{name}"));
        assert!(one.ties_with(&two));
        assert!(!one.ties_with(&rule("", "/a/b")));
        assert!(!one.ties_with(&rule("a.example.com", "/a/{id}")));
    }

    fn table(routes: &[(&str, &str, &'static str)]) -> RouteTable<&'static str> {
        RouteTable::new(
            routes
                .iter()
                .map(|(host, path, name)| (rule(host, path), *name)),
        )
    }

    fn rule(host: &str, path: &str) -> Rule {
        let host = (!host.is_empty()).then_some(host);
        Rule {
            host: HostRule::parse(host).unwrap(),
            path: Pattern::parse(path).unwrap(),
            methods: Vec::new(),
        }
    }
}
