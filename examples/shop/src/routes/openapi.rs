//! The OpenAPI description, served at `/openapi.json`.
//!
//! The description is written by hand. Tests check that it names exactly the existing routes and
//! the types of the emitted events, and that the shop responds to valid and invalid requests only
//! with responses that it describes.

use axum::response::{IntoResponse as _, Response};
use hapax_http::Query;
use http::{HeaderValue, header};

use crate::members::NoQuery;

const DESCRIPTION: &str = include_str!("openapi.json");

/// `GET /openapi.json`.
pub(super) async fn show(Query(NoQuery {}): Query<NoQuery>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], DESCRIPTION).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::providers::CARDS;

    /// The files that define routes, except for those of the demo.
    const SOURCES: [&str; 2] = [include_str!("mod.rs"), include_str!("webhooks.rs")];

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let described: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let described = described["paths"].as_object().unwrap().keys();
        let described: BTreeSet<&str> = described.map(String::as_str).collect();
        let code = SOURCES
            .iter()
            .flat_map(|text| text.lines())
            .filter(|line| !line.trim_start().starts_with("//"));
        let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        let routes: BTreeSet<&str> = literals.filter(|it| it.starts_with('/')).collect();
        assert_eq!(described, routes);
    }

    /// The files that emit events.
    const EMITTERS: [&str; 7] = [
        include_str!("orders.rs"),
        include_str!("customers.rs"),
        include_str!("payments.rs"),
        include_str!("../refunds.rs"),
        include_str!("signups.rs"),
        include_str!("uploads/mod.rs"),
        include_str!("../checkout/end.rs"),
    ];

    #[test]
    fn every_type_of_event_is_a_webhook_that_is_described() {
        let described: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let webhooks = described["webhooks"].as_object().unwrap();
        let emitted = EMITTERS.iter().flat_map(|text| {
            ["NewEvent::json(\"", ".event(\""]
                .into_iter()
                .flat_map(|call| text.split(call).skip(1))
                .filter_map(|rest| rest.split('"').next())
        });
        let emitted: BTreeSet<&str> = emitted.collect();
        let described: BTreeSet<&str> = webhooks.keys().map(String::as_str).collect();
        assert_eq!(described, emitted);
        for (kind, webhook) in webhooks {
            let body = &webhook["post"]["requestBody"]["content"]["application/json"];
            assert_eq!(body["schema"]["properties"]["type"]["const"], kind.as_str());
        }
    }

    #[test]
    fn every_operation_of_a_tenant_describes_the_rate_limit() {
        let described: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                let responses = &operation["responses"];
                let is_tenants = responses["401"].is_object() && path != "/webhooks/{source}";
                assert_eq!(responses["429"].is_object(), is_tenants, "{path}");
            }
        }
    }

    #[test]
    fn a_card_that_is_described_is_one_that_is_taken() {
        let described: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        for schema in ["NewPayment", "NewCheckout"] {
            let members = &described["components"]["schemas"][schema]["properties"];
            assert_eq!(
                members["card"]["enum"],
                serde_json::json!(CARDS),
                "{schema}"
            );
        }
    }
}
