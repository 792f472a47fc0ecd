//! `/admin/v1/filters/try`: tries a filter on stored events before a destination has it.

use axum::extract::State;
use hapax::{
    admin::{AdminError, FilterTrial, try_filter},
    key::Tenant,
    limits::FILTER_TRIAL_EVENTS,
};
use hapax_http::{Json, Problem};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller, list_query::ListQuery};
use crate::destination::FilterSetting;

/// A filter, and the events on which it is tried.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Try {
    /// The filter, as in the declaration of a destination.
    #[schema(value_type = Object)]
    filter: FilterSetting,
    /// Which events, at most 1000 of them; the newest 50 if absent. `destination`, `state`, `error`,
    /// `attempts_min` and `unread` are not allowed here.
    #[serde(default)]
    events: ListQuery,
}

/// Tries a filter on stored events, the newest first, and returns for each whether it matches.
/// Nothing is changed. After ten seconds the result so far is returned. A process runs two trials at the same
/// time for one tenant, and eight in all.
#[utoipa::path(post, path = "/admin/v1/filters/try", tag = "destinations",
    request_body = Try,
    responses((status = 200, body = FilterTrial), (status = 400, body = Problem),
        (status = 429, body = Problem)))]
pub(super) async fn run(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(body): Json<Try>,
) -> Result<Json<FilterTrial>, Problem> {
    let filter = body.filter.compile().map_err(AdminError::from)?;
    let (events, before) = (body.events.of_events()?, body.events.before.as_deref());
    let limit = limit(&body.events)?;
    let (store, actor) = (admin.store(), &caller.actor);
    // A caller takes no place of another tenant.
    let selected = events.tenant.as_ref().map(Tenant::as_str);
    let tenant = actor.tenant().or(selected);
    let place = admin.trial_place(tenant.unwrap_or_default())?;
    let place = Some(&place);
    let trial = try_filter(store, actor, &filter, &events, before, limit, place).await?;
    Ok(Json(trial))
}

/// The number of events of a trial.
pub(crate) fn limit(query: &ListQuery) -> Result<usize, AdminError> {
    let limit = query.limit();
    if limit > FILTER_TRIAL_EVENTS {
        let problem = format!("must be at most {FILTER_TRIAL_EVENTS}");
        return Err(AdminError::invalid("limit", problem));
    }
    Ok(limit)
}
