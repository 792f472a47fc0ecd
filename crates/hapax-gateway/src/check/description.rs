//! `OpenAPI` description of a service: what the checks read of it.
//!
//! Everything else is ignored, so that descriptions of every version 3 can be read. References are
//! not followed: a header that is declared by a reference counts as not declared.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;

/// The header that clients send.
const KEY: &str = "idempotency-key";

/// A description.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Description {
    /// The version of the format, such as `3.1.0`.
    pub openapi: String,
    /// The addresses of the service.
    #[serde(default)]
    pub servers: Vec<Server>,
    /// The operations by path.
    #[serde(default)]
    pub paths: BTreeMap<String, PathItem>,
}

/// An address of the service.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Server {
    /// The URL, or a path.
    pub url: String,
}

/// The operations of a path.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PathItem {
    /// The operation of GET.
    pub get: Option<Operation>,
    /// The operation of PUT.
    pub put: Option<Operation>,
    /// The operation of POST.
    pub post: Option<Operation>,
    /// The operation of DELETE.
    pub delete: Option<Operation>,
    /// The operation of PATCH.
    pub patch: Option<Operation>,
    /// The parameters of all operations.
    pub parameters: Vec<Parameter>,
}

/// An operation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// The id.
    #[serde(rename = "operationId")]
    pub id: Option<String>,
    /// The parameters.
    pub parameters: Vec<Parameter>,
}

/// A parameter of an operation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Parameter {
    name: String,
    #[serde(rename = "in")]
    place: String,
}

impl PathItem {
    /// The operations with their methods.
    pub(super) fn operations(&self) -> impl Iterator<Item = (Method, &Operation)> {
        let all = [
            (Method::GET, &self.get),
            (Method::PUT, &self.put),
            (Method::POST, &self.post),
            (Method::DELETE, &self.delete),
            (Method::PATCH, &self.patch),
        ];
        all.into_iter()
            .filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
    }

    /// Whether an operation of this path declares the header `Idempotency-Key`.
    pub(super) fn declares_key(&self, operation: &Operation) -> bool {
        let mut parameters = self.parameters.iter().chain(&operation.parameters);
        parameters.any(|it| it.place == "header" && it.name.eq_ignore_ascii_case(KEY))
    }
}

impl Description {
    /// The host and the base path of the service. Without an absolute URL the host is empty.
    pub(super) fn base(&self) -> (&str, &str) {
        let url = self.servers.first().map_or("", |it| it.url.as_str());
        let (host, path) = match url.split_once("://") {
            Some((_, rest)) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", url),
        };
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        (host, path.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_a_service_is_its_host_and_its_path() {
        check("", ("", ""));
        check("/", ("", ""));
        check("/v1", ("", "/v1"));
        check("https://api.example.com", ("api.example.com", ""));
        check(
            "https://api.example.com:8443/v1/",
            ("api.example.com", "/v1"),
        );
    }

    #[track_caller]
    fn check(url: &str, expected: (&str, &str)) {
        let server = Server {
            url: url.to_owned(),
        };
        let description = Description {
            servers: vec![server],
            ..Description::default()
        };
        assert_eq!(description.base(), expected, "{url}");
    }
}
