//! `/console/endpoints/{id}/try`: types, filter and mapping of an endpoint, tried on stored events of its
//! tenant. Nothing is changed.
//!
//! The form begins with the settings as they are: a filter that was masked would select other events.

use axum::extract::{Path, State};
use hapax::{
    admin::{AdminError, TenantEndpoint, TryEndpoint, try_endpoint},
    limits::ENDPOINT_TRIAL_EVENTS,
};
use http::StatusCode;

use super::{ErrorPage, Shown, capital};
use crate::{
    Console, endpoint_trial,
    fields::{Fields, path_of},
    guard::PageRequest,
    html::{Element, Html, el, link},
    inputs::{FILTER_HINT, MAPPING_HINT, TYPES_HINT, area},
    layout::{Page, sealed},
};

/// The settings of the form, as they are written.
struct Settings {
    types: String,
    filter: String,
    mapping: String,
}

/// Shows the form.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(id): Path<String>,
) -> Shown {
    if !page_request.acts() {
        return Err(ErrorPage::wrong("A viewer has read access only."));
    }
    let endpoint = endpoint_of(&console, &page_request, &id).await?;
    let settings = Settings::of(&endpoint);
    Ok(page(&page_request, &id, &settings, Html::default()))
}

/// Tries the settings of the form.
pub(crate) async fn run(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(id): Path<String>,
) -> Shown {
    let endpoint = endpoint_of(&console, &page_request, &id).await?;
    let Some(place) = console.0.trials.take(&endpoint.tenant) else {
        let why = "other trials are running for the tenant: wait until one has ended";
        return Err(ErrorPage::late(&why));
    };
    let settings = Settings::read(&page_request.fields);
    let types = settings.types.split_whitespace();
    let types: Vec<_> = types.map(str::to_owned).collect();
    let ask = TryEndpoint {
        tenant: &endpoint.tenant,
        types: &types,
        filter: Some(&settings.filter),
        mapping: Some(&settings.mapping),
        mask: console.queries().mask(),
        before: None,
        limit: ENDPOINT_TRIAL_EVENTS,
        place: Some(&place),
    };
    let tried = try_endpoint(console.store(), &page_request.caller().actor, &ask).await;
    let (status, said) = match tried {
        Ok(trial) => {
            let has_mapping = !settings.mapping.is_empty();
            let now = console.0.clock.now();
            let section = endpoint_trial::section(&trial, has_mapping, now);
            (StatusCode::OK, section)
        }
        Err(error @ AdminError::Invalid { .. }) => (StatusCode::BAD_REQUEST, problem(&error)),
        Err(other) => return Err(other.into()),
    };
    let mut page = page(&page_request, &id, &settings, Html::default().add(said));
    page.status = status;
    Ok(page)
}

/// The endpoint, if the caller may see it.
async fn endpoint_of(
    console: &Console,
    page_request: &PageRequest,
    id: &str,
) -> Result<TenantEndpoint, ErrorPage> {
    let (store, actor) = (console.store(), &page_request.caller().actor);
    let tenant = store.endpoint_tenant(actor, id).await?;
    Ok(store.endpoint(actor, &tenant, id).await?.endpoint)
}

fn page(page_request: &PageRequest, id: &str, settings: &Settings, said: Html) -> Page {
    let path = path_of("/console/endpoints", id);
    let button = el("button")
        .attr("type", "submit")
        .class("main")
        .add("Try filter and mapping");
    let back = link(&path, "Back to the endpoint").class("button");
    let form = el("form")
        .attr("method", "post")
        .attr("action", format!("{path}/try"))
        .class("act")
        .add(sealed(page_request))
        .add(area("types", "Event types", &settings.types, TYPES_HINT))
        .add(area("filter", "Filter", &settings.filter, FILTER_HINT))
        .add(area("mapping", "Mapping", &settings.mapping, MAPPING_HINT))
        .add(el("p").class("acts").add(button).add(back));
    Page::new(format!("Trial for {id}"), said.add(form))
}

fn problem(error: &AdminError) -> Element {
    let why = format!("{}.", capital(&error.to_string()));
    el("p").class("problem").attr("role", "alert").add(why)
}

impl Settings {
    fn of(endpoint: &TenantEndpoint) -> Self {
        Self {
            types: endpoint.types.join("\n"),
            filter: endpoint.filter.clone().unwrap_or_default(),
            mapping: endpoint.mapping.clone().unwrap_or_default(),
        }
    }

    fn read(fields: &Fields) -> Self {
        Self {
            types: fields.text("types").to_owned(),
            filter: fields.text("filter").trim().to_owned(),
            mapping: fields.text("mapping").trim().to_owned(),
        }
    }
}
