//! `OpenAPI` description of the admin API: `/admin/v1/openapi.json`.

use std::sync::LazyLock;

use hapax_http::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Ref, RefOr, Response,
        path::Operation,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::{
    deliveries, destinations, endpoint_trial, endpoints, events, filters, inbox, jobs, keys,
    polling, portal, retry, sagas, stalled, test_event, timeline, unknown,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Hapax admin API", version = "1", license(name = "MIT OR Apache-2.0")),
    paths(
        show,
        destinations::list, destinations::create, destinations::show, destinations::change,
        destinations::remove, destinations::pause, destinations::resume, test_event::send,
        filters::run, endpoint_trial::run,
        events::list, events::show,
        deliveries::list, retry::retry, deliveries::dead, deliveries::replay, deliveries::edit, deliveries::discard,
        jobs::replay_dead_letters, jobs::discard_dead_letters, jobs::replay_events,
        jobs::list, jobs::show, jobs::cancel, jobs::audit,
        keys::list, keys::show, keys::purge, inbox::list,
        sagas::list, sagas::show, sagas::decide,
        polling::list, polling::create, polling::show, polling::remove, polling::rotate,
        polling::seek,
        endpoints::list, endpoints::create, endpoints::show, endpoints::change,
        endpoints::delete, endpoints::rotate, endpoints::enable, endpoints::disable,
        endpoints::deliveries, endpoints::health, endpoints::replay,
        endpoints::replay_missing, endpoints::test,
        portal::create,
        unknown::list, unknown::show, unknown::decide,
        timeline::show, stalled::stalled, stalled::overview,
    ),
    security(("token" = [])),
    modifiers(&Token, &Problems),
)]
struct Description;

struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_with(Default::default);
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("token", scheme);
    }
}

/// Adds the problem responses that every route can return, with their media type.
struct Problems;

impl Modify for Problems {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut openapi.paths.paths {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
            ];
            for operation in operations.into_iter().flatten() {
                complete(operation, path.contains('{'));
            }
        }
    }
}

/// The media type of problems.
const PROBLEM: &str = "application/problem+json";
/// The responses of authentication, the store and internal errors, which every route can return.
const ALWAYS: [(&str, &str); 5] = [
    ("401", "the token is missing or unknown"),
    (
        "403",
        "the role or the origin of the request does not allow it",
    ),
    ("500", "an internal error; see the log"),
    ("503", "the database is unavailable; try again"),
    ("504", "the database did not respond in time; try again"),
];
const OF_A_REQUEST: (&str, &str) = ("400", "the request is not valid");
const OF_A_NAME: (&str, &str) = ("404", "nothing has this name");
const OF_A_BODY: [(&str, &str); 2] = [
    ("413", "the body is too large"),
    ("415", "the body is not JSON"),
];

fn complete(operation: &mut Operation, is_named: bool) {
    let responses = &mut operation.responses.responses;
    for (status, response) in responses.iter_mut() {
        if let (true, RefOr::T(response)) = (status.starts_with(['4', '5']), response) {
            response.content.clear();
            response.content.insert(PROBLEM.to_owned(), problem());
        }
    }
    let mut more = ALWAYS.to_vec();
    if operation.parameters.is_some() || operation.request_body.is_some() {
        more.push(OF_A_REQUEST);
    }
    if is_named {
        more.push(OF_A_NAME);
    }
    if operation.request_body.is_some() {
        more.extend(OF_A_BODY);
    }
    for (status, description) in more {
        responses.entry(status.to_owned()).or_insert_with(|| {
            let mut response = Response::new(description);
            response.content.insert(PROBLEM.to_owned(), problem());
            response.into()
        });
    }
}

fn problem() -> RefOr<Content> {
    Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem")))).into()
}

/// Returns this description.
#[utoipa::path(get, path = "/admin/v1/openapi.json", tag = "description",
    responses((status = 200, description = "OpenAPI 3.1")))]
pub(super) async fn show() -> Json<&'static utoipa::openapi::OpenApi> {
    // Building the description takes milliseconds, and every caller with a token can request it.
    static DESCRIPTION: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(Description::openapi);
    Json(&DESCRIPTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let described = Description::openapi();
        let described: Vec<_> = described.paths.paths.keys().map(String::as_str).collect();
        let mut routes: Vec<_> = super::super::routes()
            .iter()
            .map(|(path, _)| *path)
            .collect();
        routes.sort_unstable();
        assert_eq!(described, routes);
    }

    #[test]
    fn every_route_says_what_it_answers_when_something_is_wrong() {
        let json = serde_json::to_value(Description::openapi()).unwrap();
        for (path, item) in json["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                for status in ["401", "403", "500", "503", "504"] {
                    assert!(responses.contains_key(status), "{method} {path} {status}");
                }
                let wrong = responses
                    .iter()
                    .filter(|(status, _)| status.as_str() >= "400");
                for (status, response) in wrong {
                    let content: Vec<_> = response["content"].as_object().unwrap().keys().collect();
                    assert_eq!(content, [PROBLEM], "{method} {path} {status}");
                }
            }
        }
    }

    #[test]
    fn the_description_is_openapi_3_1_and_shows_no_secret_type() {
        let json = serde_json::to_value(Description::openapi()).unwrap();
        assert!(json["openapi"].as_str().unwrap().starts_with("3.1"));
        assert!(json["components"]["schemas"]["Problem"].is_object());
    }

    #[test]
    fn every_operation_describes_the_errors_of_authentication_body_and_store() {
        let json = serde_json::to_value(Description::openapi()).unwrap();
        for (path, route) in json["paths"].as_object().unwrap() {
            for (verb, operation) in route.as_object().unwrap() {
                let mut expected = vec!["401", "403", "500", "503", "504"];
                if operation["requestBody"].is_object() {
                    expected.extend(["400", "413", "415"]);
                }
                for status in expected {
                    let answer = &operation["responses"][status];
                    assert!(answer["content"].is_object(), "{verb} {path} {status}");
                }
            }
        }
    }
}
