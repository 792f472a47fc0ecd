//! The API, described: `/admin/v1/openapi.json`.

use axum::Json;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

use super::{deliveries, destinations, events, jobs};

#[derive(OpenApi)]
#[openapi(
    info(title = "Hapax admin API", version = "1", license(name = "MIT OR Apache-2.0")),
    paths(
        show,
        destinations::list, destinations::create, destinations::show, destinations::change,
        destinations::remove, destinations::pause, destinations::resume,
        events::list, events::show,
        deliveries::list, deliveries::dead, deliveries::replay, deliveries::discard,
        jobs::replay_dead_letters, jobs::discard_dead_letters, jobs::replay_events,
        jobs::list, jobs::show, jobs::cancel, jobs::audit,
    ),
    security(("token" = [])),
    modifiers(&Token),
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

/// Describes this API.
#[utoipa::path(get, path = "/admin/v1/openapi.json", tag = "description",
    responses((status = 200, description = "OpenAPI 3.1")))]
pub(super) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
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
    fn the_description_is_openapi_3_1_and_shows_no_secret_type() {
        let json = serde_json::to_value(Description::openapi()).unwrap();
        assert!(json["openapi"].as_str().unwrap().starts_with("3.1"));
        assert!(json["components"]["schemas"]["Problem"].is_object());
    }
}
