//! `/admin/v1/unknown-outcomes`: requests that a gateway has sent without a complete response.
//!
//! They are listed with the record of the gateway, and decided: the request happened, with the
//! response that retries receive, or it did not happen, and a retry is sent.

use axum::{
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hapax::{
    admin::{
        AdminError, KeyDecision, KeyFilter, KeyOutcome, Page, UnknownFilter, UnknownOutcome,
        UnknownReason, decide_unknown, given_response, read_field, read_time, unknown_outcome,
        unknown_outcomes,
    },
    idempotency::StoredResponse,
    key::Tenant,
};
use hapax_http::{Json, Path, Problem, Query};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AdminApi, Route, auth::Caller, list_query::PAGE};
use crate::environment;

/// Filter of unknown outcomes, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskUnknown {
    /// Only requests of this operation, such as `gateway:POST /orders`
    operation: Option<String>,
    /// Only requests of this tenant
    tenant: Option<String>,
    /// Only keys that begin with this; with a leading #, only keys whose short hash begins with
    /// this
    key: Option<String>,
    /// Only this reason: stopped, timeout, cut, status, `too_large`, `no_length` or protocol
    reason: Option<String>,
    /// Only upstreams or instances that begin with this
    upstream: Option<String>,
    /// Only requests that wait for a decision, or only those of a gateway that still waits
    waiting: Option<bool>,
    /// Only keys claimed at or after this time (RFC 3339)
    since: Option<String>,
    /// Only keys claimed before this time (RFC 3339)
    until: Option<String>,
    /// Start of the page: `next` of the previous page
    before: Option<String>,
    /// Maximum number of outcomes
    limit: Option<usize>,
}

/// The tenant of a key.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct WhoseKey {
    /// Tenant of the key; required if several tenants have used the key for this operation
    tenant: Option<String>,
}

/// A decision about an unknown outcome, and its reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecideUnknown {
    /// The `version` of the outcome that you have seen. If the request was sent again since,
    /// nothing is decided.
    version: String,
    /// `happened` or `did_not_happen`.
    outcome: String,
    /// The response that every retry receives, if the request happened.
    #[serde(default)]
    response: Option<GivenResponse>,
    /// Up to 1024 bytes, kept in the audit log.
    reason: String,
}

/// A response that an operator gives.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenResponse {
    /// The status, from 200 to 599.
    status: u16,
    /// The headers as pairs of name and value.
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// The body as text.
    #[serde(default)]
    body: Option<String>,
    /// The body in Base64, if it is not text.
    #[serde(default)]
    body_base64: Option<String>,
}

/// The routes.
pub(super) fn routes() -> [Route; 3] {
    [
        ("/admin/v1/unknown-outcomes", get(list)),
        ("/admin/v1/unknown-outcomes/{operation}/{key}", get(show)),
        (
            "/admin/v1/unknown-outcomes/{operation}/{key}/decide",
            post(decide),
        ),
    ]
}

/// Lists unknown outcomes, latest claims first. A page may be empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/unknown-outcomes", tag = "gateway", params(AskUnknown),
    responses((status = 200, body = Page<UnknownOutcome>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskUnknown>,
) -> Result<Json<Page<UnknownOutcome>>, Problem> {
    let filter = ask.filter()?;
    let page = (ask.before.as_deref(), ask.limit.unwrap_or(PAGE));
    let (store, now) = (admin.store(), environment::clock().now());
    let listed = unknown_outcomes(store, &caller.actor, &filter, page, now);
    Ok(Json(listed.await?))
}

/// Shows one unknown outcome.
#[utoipa::path(get, path = "/admin/v1/unknown-outcomes/{operation}/{key}", tag = "gateway",
    params(("operation" = String, Path), ("key" = String, Path), WhoseKey),
    responses((status = 200, body = UnknownOutcome), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<WhoseKey>,
) -> Result<Json<UnknownOutcome>, Problem> {
    let (store, tenant) = (admin.store(), whose.tenant.as_deref());
    let found = unknown_outcome(store, &caller.actor, tenant, &operation, &key);
    Ok(Json(found.await?.0))
}

/// Decides about an unknown outcome: every retry receives the given response, or a retry is sent.
///
/// The same decision can be sent again.
#[utoipa::path(post, path = "/admin/v1/unknown-outcomes/{operation}/{key}/decide", tag = "gateway",
    params(("operation" = String, Path), ("key" = String, Path), WhoseKey),
    request_body = DecideUnknown,
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn decide(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((operation, key)): Path<(String, String)>,
    Query(whose): Query<WhoseKey>,
    Json(body): Json<DecideUnknown>,
) -> Result<StatusCode, Problem> {
    let outcome = body.outcome()?;
    let decision = KeyDecision {
        tenant: whose.tenant,
        operation,
        key,
        version: body.version,
        outcome,
        reason: body.reason,
    };
    decide_unknown(admin.store(), &caller.actor, &decision).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl AskUnknown {
    fn filter(&self) -> Result<UnknownFilter, AdminError> {
        let reasons = UnknownReason::ALL.map(UnknownReason::as_str).join(", ");
        let reasons = format!("one of {reasons}");
        let (tenant, reason) = (self.tenant.as_deref(), self.reason.as_deref());
        Ok(UnknownFilter {
            keys: KeyFilter {
                operation: self.operation.clone(),
                tenant: read_field("tenant", tenant, "a tenant", |it| Tenant::new(it).ok())?,
                key: self.key.clone(),
                state: None,
                since: read_time("since", self.since.as_deref())?,
                until: read_time("until", self.until.as_deref())?,
            },
            reason: read_field("reason", reason, &reasons, UnknownReason::named)?,
            upstream: self.upstream.clone(),
            is_waiting: self.waiting,
        })
    }
}

impl DecideUnknown {
    /// The outcome, parsed. A response that does not belong to it is refused instead of ignored.
    fn outcome(&self) -> Result<KeyOutcome, AdminError> {
        match (self.outcome.as_str(), &self.response) {
            ("happened", Some(response)) => Ok(KeyOutcome::Happened(response.parsed()?)),
            ("happened", None) => {
                let problem = "is missing: expected the response that the service has given";
                Err(AdminError::invalid("response", problem))
            }
            ("did_not_happen", None) => Ok(KeyOutcome::DidNotHappen),
            ("did_not_happen", Some(_)) => {
                let problem = "does not belong to \"did_not_happen\"";
                Err(AdminError::invalid("response", problem))
            }
            _ => {
                let problem = "must be happened or did_not_happen";
                Err(AdminError::invalid("outcome", problem))
            }
        }
    }
}

impl GivenResponse {
    fn parsed(&self) -> Result<StoredResponse, AdminError> {
        let body = match (&self.body, &self.body_base64) {
            (Some(_), Some(_)) => {
                let problem = "must not be given with body";
                return Err(AdminError::invalid("body_base64", problem));
            }
            (Some(text), None) => Bytes::from(text.clone()),
            (None, Some(text)) => {
                let wrong = |_| AdminError::invalid("body_base64", "must be Base64");
                Bytes::from(STANDARD.decode(text).map_err(wrong)?)
            }
            (None, None) => Bytes::new(),
        };
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        given_response(self.status, headers, body)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_decision_is_spelled_whole_and_nothing_of_it_is_dropped() {
        let response = |body: Value| json!({"outcome": "happened", "response": body});
        let happened = given_response(201, [("x-a", "b")], Bytes::from_static(b"{}")).unwrap();
        check(
            response(json!({"status": 201, "headers": [["X-A", "b"]], "body": "{}"})),
            Ok(KeyOutcome::Happened(happened.clone())),
        );
        check(
            response(json!({"status": 201, "headers": [["x-a", "b"]], "body_base64": "e30="})),
            Ok(KeyOutcome::Happened(happened)),
        );
        check(
            json!({"outcome": "did_not_happen"}),
            Ok(KeyOutcome::DidNotHappen),
        );
        check(json!({"outcome": "happened"}), Err("response"));
        check(
            json!({"outcome": "did_not_happen", "response": {"status": 201}}),
            Err("response"),
        );
        check(
            response(json!({"status": 201, "body": "", "body_base64": ""})),
            Err("body_base64"),
        );
        check(
            response(json!({"status": 201, "body_base64": "?"})),
            Err("body_base64"),
        );
        check(
            response(json!({"status": 201, "headers": [["content-length", "7"]]})),
            Err("headers"),
        );
        check(json!({"outcome": "perhaps"}), Err("outcome"));
    }

    #[track_caller]
    fn check(mut body: Value, expected: Result<KeyOutcome, &str>) {
        body["version"] = "1.ab".into();
        body["reason"] = "why".into();
        let decide: DecideUnknown = serde_json::from_value(body).unwrap();
        let spelled = decide.outcome().map_err(|wrong| match wrong {
            AdminError::Invalid { field, .. } => field,
            other => other.to_string(),
        });
        assert_eq!(spelled, expected.map_err(str::to_owned));
    }
}
