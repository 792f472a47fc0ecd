//! Middleware of all requests of the portal: session, rights, CSRF protection, and security headers.
//!
//! The order is fixed, and each step can refuse the request: the session, the origin of a form, its
//! rights, the rate limit of the tenant. Only then is a form read, and its CSRF token checked. The layout
//! of a page is added here, because only here is the session known.

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};

use super::{BASE, FOLDER, OPEN, Portal, claims::Claims, layout, refusal};
use crate::{
    fields::Fields,
    guard::{cookie_named, document, is_same_origin, read_form},
    layout::Page,
};

/// The name of the cookie.
const COOKIE: &str = "hapax_portal";

/// A request of the portal: the session and the fields.
#[derive(Clone)]
pub(super) struct PortalRequest {
    /// The claims of the session's token; `None` at [`OPEN`] and on the page of a refused link.
    claims: Option<Claims>,
    /// The CSRF token for forms.
    pub(super) seal: String,
    /// The fields of the query or of the form.
    pub(super) fields: Fields,
    /// The requested path.
    pub(super) path: String,
}

impl PortalRequest {
    /// The claims of the session's token. They exist after the guard, except at [`OPEN`].
    pub(super) fn claims(&self) -> &Claims {
        let claims = self.claims.as_ref();
        claims.expect("no request without a session passes the guard")
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// The tenant of the session.
    pub(super) fn tenant(&self) -> &str {
        self.claims().tenant.as_str()
    }

    /// Whether the session may change things.
    pub(super) fn may_write(&self) -> bool {
        self.claims.as_ref().is_some_and(Claims::may_write)
    }
}

impl FromRequestParts<Portal> for PortalRequest {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &Portal) -> Result<Self, StatusCode> {
        let request = parts.extensions.get::<Self>().cloned();
        request.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Middleware that refuses requests that are not allowed.
pub(super) async fn pass(State(portal): State<Portal>, request: Request, next: Next) -> Response {
    let mut response = if request.uri().path().starts_with(FOLDER) {
        next.run(request).await
    } else {
        answer(&portal, request, next).await
    };
    protect(&portal, response.headers_mut());
    response
}

async fn answer(portal: &Portal, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let token = cookie_named(&parts.headers, COOKIE).unwrap_or_default();
    let token = token.to_owned();
    let mut page_request = PortalRequest {
        claims: portal.0.links.verify(&token),
        seal: portal.0.links.seal(&token),
        fields: Fields::parse(parts.uri.query().unwrap_or_default().as_bytes()),
        path: parts.uri.path().to_owned(),
    };
    let refused = if page_request.path == OPEN {
        None
    } else if parts.method == Method::POST {
        take(portal, &mut page_request, &token, &parts.headers, body).await
    } else {
        may_see(portal, &page_request)
    };
    let mut response = if let Some(refused) = refused {
        refused
    } else {
        let mut request = Request::from_parts(parts, Body::empty());
        request.extensions_mut().insert(page_request.clone());
        next.run(request).await
    };
    if let Some(page) = response.extensions_mut().remove::<Page>() {
        let status = page.status;
        let html = layout::render(portal, &page_request, page);
        response = document(status, html, response);
    }
    response
}

fn may_see(portal: &Portal, page_request: &PortalRequest) -> Option<Response> {
    let Some(claims) = page_request.session() else {
        return Some(refusal::no_session());
    };
    let taken = portal.0.page_rates.take(claims.tenant.as_str(), 1);
    taken.err().map(refusal::too_many)
}

/// Reads a form. A caller who may not send forms is refused before any of it is read.
async fn take(
    portal: &Portal,
    page_request: &mut PortalRequest,
    token: &str,
    headers: &HeaderMap,
    body: Body,
) -> Option<Response> {
    if let Some(refused) = may_act(portal, page_request, headers) {
        return Some(refused);
    }
    match read_form(body).await {
        Ok(form) => page_request.fields = Fields::parse(&form),
        Err(refused) => return Some(refused),
    }
    let seal = page_request.fields.text("seal");
    (!portal.0.links.is_seal(token, seal)).then(refusal::expired_form)
}

fn may_act(portal: &Portal, page_request: &PortalRequest, headers: &HeaderMap) -> Option<Response> {
    let Some(claims) = page_request.session() else {
        return Some(refusal::no_session());
    };
    if !is_same_origin(headers) && !is_at(headers, portal.0.links.url()) {
        tracing::warn!(path = page_request.path, "refused a form of another site");
        return Some(refusal::cross_site());
    }
    if !claims.may_write() {
        return Some(refusal::read_only());
    }
    let taken = portal.0.form_rates.take(claims.tenant.as_str(), 1);
    taken.err().map(refusal::too_many)
}

/// Whether a form comes from the public address of the portal, if a proxy changes the host name.
fn is_at(headers: &HeaderMap, url: &str) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|it| it.to_str().ok());
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(url))
}

/// Sets the cookie of a session.
pub(super) fn set_cookie(portal: &Portal, response: &mut Response, token: &str, claims: &Claims) {
    let age = portal.0.links.rest(claims).as_secs();
    let kind = if portal.0.is_embedded {
        "SameSite=None; Secure; Partitioned"
    } else if portal.0.links.url().starts_with("https://") {
        "SameSite=Lax; Secure"
    } else {
        "SameSite=Lax"
    };
    let text = format!("{COOKIE}={token}; Path={BASE}; Max-Age={age}; HttpOnly; {kind}");
    // A verified token consists of base64url and dots.
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

/// Only resources that the portal itself serves and the logo, and no inline script or style.
pub(super) fn policy(logo: Option<&str>, embed: &[String]) -> HeaderValue {
    let logo = logo.map(|origin| format!(" {origin}")).unwrap_or_default();
    let frames = if embed.is_empty() {
        "'none'".to_owned()
    } else {
        embed.join(" ")
    };
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{logo}; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors {frames}"
    );
    HeaderValue::from_str(&policy).expect("checked origins make a header")
}

fn protect(portal: &Portal, headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, portal.0.policy.clone());
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let shared = if portal.0.is_embedded {
        "cross-origin"
    } else {
        // Browsers that know the policy ignore this header, which cannot name origins.
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        "same-origin"
    };
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static(shared),
    );
    // With a stricter policy, browsers do not send the origin of a form.
    let referrer = HeaderValue::from_static("same-origin");
    headers.entry(header::REFERRER_POLICY).or_insert(referrer);
    let keep = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(keep);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_the_logo_and_the_frames_and_nothing_else_of_other_hosts() {
        let own = policy(None, &[]);
        let own = own.to_str().unwrap();
        assert!(own.contains("img-src 'self';"), "{own}");
        assert!(own.ends_with("frame-ancestors 'none'"), "{own}");
        assert!(!own.contains("unsafe"), "{own}");
        let embed = [
            "https://a.example".to_owned(),
            "https://b.example".to_owned(),
        ];
        let shared = policy(Some("https://cdn.example"), &embed);
        let shared = shared.to_str().unwrap();
        assert!(
            shared.contains("img-src 'self' https://cdn.example;"),
            "{shared}"
        );
        assert!(
            shared.ends_with("frame-ancestors https://a.example https://b.example"),
            "{shared}"
        );
    }
}
