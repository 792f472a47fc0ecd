//! `POST /portal/endpoints/{id}`: changes an endpoint, or tries the filter and the mapping of its form.

use std::time::Duration;

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;

use super::{create::invalid, done, endpoint, endpoint_path};
use crate::{
    html::Html,
    portal::{
        Portal,
        form::EndpointForm,
        guard::PortalRequest,
        refusal::{self, Refusal},
    },
};

/// Changes the endpoint if it is still at the version of the form.
pub(super) async fn change(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (actor, tenant) = (page_request.claims().actor(), page_request.tenant());
    let stored = portal.store().endpoint(&actor, tenant, &id).await?.endpoint;
    let read = EndpointForm::read(&page_request.fields);
    let (status, said) = if page_request.fields.text("action") == "try" {
        let Some(place) = portal.0.trial_places.take(page_request.tenant()) else {
            return Ok(refusal::too_many(Duration::ZERO));
        };
        match read.tried(&portal, &page_request, &place).await {
            Ok(trial) => (StatusCode::OK, trial),
            Err(error) => (StatusCode::BAD_REQUEST, invalid(error)?),
        }
    } else {
        let version = version_of(&page_request)?;
        let changed = match read.patch(version) {
            Ok(patch) => portal.0.operations.update(&actor, tenant, &id, patch).await,
            Err(error) => Err(error),
        };
        match changed {
            Ok(_) => return Ok(done(&endpoint_path(&id), "saved")),
            Err(error) => (StatusCode::BAD_REQUEST, invalid(error)?),
        }
    };
    let said = Html::default().add(said);
    let mut page = endpoint::page(&portal, &page_request, &stored, &read, said).await?;
    page.status = status;
    Ok(page.into_response())
}

/// The version that a form is based on.
pub(super) fn version_of(page_request: &PortalRequest) -> Result<i64, Refusal> {
    let version = page_request.fields.text("version").parse();
    version.map_err(|_| Refusal::wrong("the form has no version"))
}
