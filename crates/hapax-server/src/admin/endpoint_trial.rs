//! `/admin/v1/endpoints/try`: tries the settings of an endpoint on stored events before an endpoint has
//! them.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use hapax::{
    admin::{AdminError, EndpointTrial, TryEndpoint, check_endpoint_tenant, try_endpoint},
    limits::{ENDPOINT_TRIAL_EVENTS, TRIALS},
    places::Place,
};
use hapax_http::{Json, Problem, problem::RATE_LIMIT};
use hapax_sinks::settings::JsonSetting;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller, endpoints::tenant_of};
use crate::destination::FilterSetting;

/// Settings of an endpoint, and the events on which they are tried.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EndpointTry {
    /// The tenant whose events are looked at; that of the token if absent.
    tenant: Option<String>,
    /// Patterns of event types, such as `order.*`; all types if empty.
    types: Vec<String>,
    /// Conditions on the content of events.
    #[schema(value_type = Option<Object>)]
    filter: Option<FilterSetting>,
    /// A template that makes the body of each request.
    #[schema(value_type = Option<Object>)]
    mapping: Option<JsonSetting>,
    /// Start of the page: `next` of the previous trial.
    before: Option<String>,
    /// Maximum number of events, 1 to 50; 50 is the default.
    limit: Option<usize>,
}

/// Tries types, filter and mapping of an endpoint on stored events of its tenant, the newest first. Returns
/// for each whether it matches, and what the mapping makes of it. Nothing is sent or changed. After ten
/// seconds, or 1 MiB of bodies, the result so far is returned. A process runs two trials at the same time for
/// one tenant, and eight in all.
#[utoipa::path(post, path = "/admin/v1/endpoints/try", tag = "endpoints",
    request_body = EndpointTry,
    responses((status = 200, body = EndpointTrial), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 429, body = Problem)))]
pub(super) async fn run(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(body): Json<EndpointTry>,
) -> Result<Json<EndpointTrial>, Problem> {
    let tenant = tenant_of(&caller.actor, body.tenant)?;
    // A caller takes no place of another tenant.
    check_endpoint_tenant(&caller.actor, &tenant)?;
    let place = admin.trial_place(&tenant)?;
    let filter = body.filter.map(|it| it.text());
    let mapping = body.mapping.map(|it| it.text());
    let ask = TryEndpoint {
        tenant: &tenant,
        types: &body.types,
        filter: filter.as_deref(),
        mapping: mapping.as_deref(),
        mask: &admin.0.mask,
        before: body.before.as_deref(),
        limit: limit(body.limit)?,
        place: Some(&place),
    };
    let trial = try_endpoint(admin.store(), &caller.actor, &ask).await?;
    Ok(Json(trial))
}

impl AdminApi {
    /// A place for a trial on the events of a tenant. Trials on those of all tenants share the places of the
    /// empty name, which no tenant has.
    pub(super) fn trial_place(&self, tenant: &str) -> Result<Arc<Place>, Problem> {
        self.0.trials.take(tenant).ok_or_else(|| {
            let (of_tenant, all) = TRIALS;
            let busy = format!(
                "{of_tenant} trials are running for the tenant, or {all} in all: wait until one has ended"
            );
            Problem::new(RATE_LIMIT)
                .detail(busy)
                .retry_after(Duration::from_secs(1))
        })
    }
}

/// The number of events of a trial.
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, AdminError> {
    let limit = asked.unwrap_or(ENDPOINT_TRIAL_EVENTS);
    if !(1..=ENDPOINT_TRIAL_EVENTS).contains(&limit) {
        let problem = format!("must be 1 to {ENDPOINT_TRIAL_EVENTS}");
        return Err(AdminError::invalid("limit", problem));
    }
    Ok(limit)
}
