//! `/portal/endpoints/new`: the form of a new endpoint, and what it creates.
//!
//! The form has a nonce, of which the id of the endpoint is made. If it is sent twice, the second
//! request finds that the endpoint exists.

use std::time::Duration;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::admin::AdminError;
use http::StatusCode;

use super::{ENDPOINTS, endpoint_path, secret::shown_secret};
use crate::{
    html::{Html, el, link},
    layout::Page,
    portal::{
        Portal,
        form::{EndpointForm, buttons, problem},
        guard::PortalRequest,
        layout::{form, hidden},
        refusal::{self, Refusal},
    },
    session::mint,
};

/// Maximum length of a nonce in bytes. The portal makes shorter ones.
const NONCE_BYTES_MAX: usize = 64;

/// Shows the form.
pub(super) async fn show(State(portal): State<Portal>, page_request: PortalRequest) -> Response {
    if !page_request.may_write() {
        return refusal::read_only();
    }
    let page = page(
        &portal,
        &page_request,
        &EndpointForm::default(),
        &mint(),
        Html::default(),
    );
    page.into_response()
}

/// Creates the endpoint, or tries its filter and its mapping.
pub(super) async fn create(
    State(portal): State<Portal>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let read = EndpointForm::read(&page_request.fields);
    let nonce = page_request.fields.get("nonce");
    let nonce = nonce.filter(|it| it.len() <= NONCE_BYTES_MAX);
    let again = nonce.map_or_else(mint, str::to_owned);
    if page_request.fields.text("action") == "try" {
        let Some(place) = portal.0.trial_places.take(page_request.tenant()) else {
            return Ok(refusal::too_many(Duration::ZERO));
        };
        let (status, said) = match read.tried(&portal, &page_request, &place).await {
            Ok(trial) => (StatusCode::OK, trial),
            Err(error) => (StatusCode::BAD_REQUEST, invalid(error)?),
        };
        let said = Html::default().add(said);
        let mut page = page(&portal, &page_request, &read, &again, said);
        page.status = status;
        return Ok(page.into_response());
    }
    let claims = page_request.claims();
    let id = nonce.map(|it| portal.0.links.endpoint_id(&claims.tenant, it));
    let (actor, tenant) = (claims.actor(), page_request.tenant());
    let created = match read.draft(id) {
        Ok(draft) => portal.0.operations.create(&actor, tenant, draft).await,
        Err(error) => Err(error),
    };
    let created = match created {
        Ok(created) => created,
        Err(error) => {
            let said = Html::default().add(invalid(error)?);
            let mut page = page(&portal, &page_request, &read, &again, said);
            page.status = StatusCode::BAD_REQUEST;
            return Ok(page.into_response());
        }
    };
    let to = endpoint_path(&created.endpoint.id);
    let why = "Your server needs this secret to verify the signature of each request.";
    let body = Html::default()
        .add(
            el("p")
                .class("told")
                .attr("role", "status")
                .add("The endpoint is created."),
        )
        .add(shown_secret(&created.secret, why))
        .add(el("p").add(link(&to, "Open endpoint").class("button")));
    Ok(Page::new("Endpoint created", body).into_response())
}

/// What is wrong with the fields; another error is a separate page.
pub(super) fn invalid(error: AdminError) -> Result<crate::html::Element, Refusal> {
    match error {
        AdminError::Invalid { .. } => Ok(problem(&error)),
        other => Err(other.into()),
    }
}

fn page(
    portal: &Portal,
    page_request: &PortalRequest,
    read: &EndpointForm,
    nonce: &str,
    said: Html,
) -> Page {
    let known = &portal.0.event_types.names;
    let form = form(page_request, ENDPOINTS)
        .add(hidden("nonce", nonce))
        .add(read.fields(known, &[], portal.0.offers_thin))
        .add(buttons("create", "Create endpoint"));
    Page::new("Add endpoint", said.add(form))
}
