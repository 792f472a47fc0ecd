//! `/portal/open`: verifies the token of a link and makes it the cookie of the session.

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderValue, header};

use crate::portal::{
    BASE, Portal,
    guard::{PortalRequest, set_cookie},
    refusal,
};

/// Opens the portal. A new link replaces the session of an earlier one.
pub(super) async fn open(State(portal): State<Portal>, page_request: PortalRequest) -> Response {
    let token = page_request.fields.text("token");
    let mut response = match portal.0.links.verify(token) {
        Some(claims) => {
            let mut response = Redirect::to(BASE).into_response();
            set_cookie(&portal, &mut response, token, &claims);
            response
        }
        None => refusal::no_session(),
    };
    // The address contains the token.
    let referrer = HeaderValue::from_static("no-referrer");
    response
        .headers_mut()
        .insert(header::REFERRER_POLICY, referrer);
    response
}
