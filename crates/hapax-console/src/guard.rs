//! Middleware of all requests: authentication, CSRF protection, and security headers.
//!
//! The order is fixed, and each step can refuse the request: the host name, the origin of a form,
//! the session and its role. Only then is a form read, within a time limit, and its CSRF token
//! checked. So a handler is only called for a request that its caller may send. Static files need no
//! session, and have the same security headers.
//!
//! The layout of a page is added here, because only here is the caller known.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use tokio::time::timeout;

use crate::{
    BASE, Console, assets,
    auth::{Caller, Role, is_local},
    fields::{Fields, url},
    layout::{self, Page},
    navigation::Tallies,
    session::{self, COOKIE, LIFE},
};

/// Maximum size of a form in bytes: the result of a saga step.
const FORM_BYTES_MAX: usize = 64 * 1024;
/// Time limit for reading a form. A browser sends it together with its headers.
const FORM_TIME: Duration = Duration::from_secs(10);
/// Length of a cookie: 32 bytes in base64 without padding.
const COOKIE_LENGTH: usize = 43;
/// The path of the sign-in page and of its form.
pub(crate) const LOGIN: &str = "/console/login";
/// The path for signing out.
pub(crate) const LOGOUT: &str = "/console/logout";

/// The content security policy: only resources that the console itself serves, and no inline script
/// or style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// A request that has passed the guard, as the handlers of pages receive it.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// The caller; `None` on the sign-in page and on the page of a refused request.
    pub(crate) caller: Option<Caller>,
    /// The CSRF token for forms.
    pub(crate) csrf_token: String,
    /// The fields of the query or of the form.
    pub(crate) fields: Fields,
    /// The requested path.
    pub(crate) path: String,
    /// The cookie of the browser, or the one that the response sets.
    pub(crate) cookie: String,
    /// Whether signing in is required: the console has tokens.
    pub(crate) signs_in: bool,
}

impl PageRequest {
    /// The caller. Every handler except that of the sign-in page has one.
    pub(crate) fn caller(&self) -> &Caller {
        self.caller
            .as_ref()
            .expect("the guard refuses pages without a caller, except the sign-in page")
    }

    /// Whether the caller may change things.
    pub(crate) fn acts(&self) -> bool {
        let caller = self.caller.as_ref();
        caller.is_some_and(|caller| caller.role == Role::Operator)
    }
}

impl FromRequestParts<Console> for PageRequest {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &Console) -> Result<Self, StatusCode> {
        let page_request = parts.extensions.get::<Self>().cloned();
        page_request.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Middleware that refuses requests that are not allowed.
pub(crate) async fn pass(State(console): State<Console>, request: Request, next: Next) -> Response {
    let mut response = if request.uri().path().starts_with(assets::FOLDER) {
        next.run(request).await
    } else {
        respond(&console, request, next).await
    };
    set_security_headers(response.headers_mut());
    response
}

/// Refuses the request or calls its handler, and adds the layout to a page.
async fn respond(console: &Console, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let given = cookie(&parts.headers);
    // A browser without a session has a cookie too: the CSRF token of the sign-in form needs one.
    let cookie = given.clone().unwrap_or_else(session::mint);
    let mut page_request = PageRequest {
        caller: find_caller(console, &parts.headers, given.as_deref()),
        csrf_token: console.0.sessions.csrf_token(&cookie),
        fields: Fields::parse(parts.uri.query().unwrap_or_default().as_bytes()),
        path: parts.uri.path().to_owned(),
        cookie: cookie.clone(),
        signs_in: !console.0.tokens.is_empty(),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    let refused = if *request.method() == Method::POST {
        refuse_form(console, &mut page_request, request.headers(), body).await
    } else {
        refuse_page(console, &page_request, &request)
    };
    let mut response = if let Some(refused) = refused {
        refused
    } else {
        request.extensions_mut().insert(page_request.clone());
        next.run(request).await
    };
    if let Some(page) = response.extensions_mut().remove::<Page>() {
        let tallies = tallies(console, &page_request).await;
        response = with_layout(&page_request, &tallies, page, response);
    }
    // The handlers for signing in and out have set a new cookie.
    if given.is_none() && !response.headers().contains_key(header::SET_COOKIE) {
        set_cookie(console, &mut response, &cookie);
    }
    response
}

/// The caller with this cookie. Without tokens it is the local caller, if the request is local: the
/// page of a refused request has a layout too, which must not show anything to another caller.
fn find_caller(console: &Console, headers: &HeaderMap, cookie: Option<&str>) -> Option<Caller> {
    if console.0.tokens.is_empty() {
        return is_local(headers).then(Caller::local);
    }
    console.0.sessions.find(cookie?)
}

/// The refusal of a request that is not a form; `None` if the caller may send it.
fn refuse_page(
    console: &Console,
    page_request: &PageRequest,
    request: &Request,
) -> Option<Response> {
    if let Some(refused) = refuse_remote(console, request.headers()) {
        return Some(refused);
    }
    if page_request.caller.is_some() || page_request.path == LOGIN {
        return None;
    }
    // A script reads this path, which could do nothing with the sign-in page.
    if page_request.path == "/console/live" {
        return Some(StatusCode::UNAUTHORIZED.into_response());
    }
    let next = request.uri().path_and_query();
    let next = next.map_or(BASE, |path| path.as_str());
    // The first page is the default of the sign-in page.
    let next = if next == BASE { "" } else { next };
    Some(Redirect::to(&url(LOGIN, &[("next", next)])).into_response())
}

/// Reads a form into the fields of the request. Returns the refusal if it is not accepted. A caller
/// who may not send forms is refused before any of it is read.
async fn refuse_form(
    console: &Console,
    page_request: &mut PageRequest,
    headers: &HeaderMap,
    body: Body,
) -> Option<Response> {
    if let Some(refused) = refuse_sender(console, page_request, headers) {
        return Some(refused);
    }
    match read_form(body).await {
        Ok(form) => page_request.fields = Fields::parse(&form),
        Err(refused) => return Some(refused),
    }
    let csrf_token = page_request.fields.text("seal");
    let sessions = &console.0.sessions;
    if sessions.is_csrf_token(&page_request.cookie, csrf_token) {
        return None;
    }
    let why = "The page was loaded before this console was started, or the cookie of the \
               browser was deleted. Go back, load the page again, and send the form once more.";
    Some(refuse(StatusCode::FORBIDDEN, "The form has expired", why))
}

/// Reads a form, within the limits of its size and of its time.
pub(crate) async fn read_form(body: Body) -> Result<Bytes, Response> {
    match timeout(FORM_TIME, to_bytes(body, FORM_BYTES_MAX)).await {
        Ok(Ok(form)) => Ok(form),
        // If the browser has disconnected instead, it does not receive this response.
        Ok(Err(_)) => {
            let why = "A form has at most 64 KiB. Nothing was done.";
            Err(refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The form is too large",
                why,
            ))
        }
        Err(_) => {
            let why = "The form was not received in time. Nothing was done.";
            Err(refuse(StatusCode::REQUEST_TIMEOUT, "Timeout", why))
        }
    }
}

/// The refusal of a form by its head: where it comes from, and who has sent it.
fn refuse_sender(
    console: &Console,
    page_request: &PageRequest,
    headers: &HeaderMap,
) -> Option<Response> {
    if let Some(refused) = refuse_remote(console, headers) {
        return Some(refused);
    }
    if !is_same_origin(headers) {
        tracing::warn!(path = page_request.path, "refused a form of another site");
        let why = "The form was not sent by a page of this console.";
        return Some(refuse(StatusCode::FORBIDDEN, "Cross-site request", why));
    }
    // Signing in needs no session, and a viewer may sign out.
    if page_request.path == LOGIN || page_request.path == LOGOUT {
        return None;
    }
    let Some(caller) = &page_request.caller else {
        let why = "The session has ended: sign in again. Nothing was done.";
        return Some(refuse(StatusCode::UNAUTHORIZED, "Signed out", why));
    };
    if caller.role != Role::Operator {
        tracing::warn!(
            actor = caller.actor.name,
            "a viewer tried to change something"
        );
        let why = "A viewer has read access only. Nothing was done.";
        return Some(refuse(StatusCode::FORBIDDEN, "Not allowed", why));
    }
    None
}

/// Without tokens, refuses requests with a host name that is not local, which a web page could use
/// (DNS rebinding), and requests that were forwarded by a proxy.
///
/// This does not stop a client on another machine, which can send any host name: the process must
/// serve a console without tokens on a loopback address only.
fn refuse_remote(console: &Console, headers: &HeaderMap) -> Option<Response> {
    if !console.0.tokens.is_empty() || is_local(headers) {
        return None;
    }
    let why = "Without tokens, only direct requests from localhost are allowed.";
    Some(refuse(StatusCode::FORBIDDEN, "Not allowed", why))
}

/// Whether a form comes from a page of this host and port, according to the browser. The scheme is
/// not compared, because a proxy may end TLS.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name)?.to_str().ok();
    let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
    match (origin, text(header::HOST)) {
        (Some((_, origin)), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// An error page.
fn refuse(status: StatusCode, title: &'static str, why: &str) -> Response {
    Page::problem(status, title, why).into_response()
}

/// The numbers in the navigation. A page is complete without them if the database does not answer.
async fn tallies(console: &Console, page_request: &PageRequest) -> Tallies {
    let Some(caller) = &page_request.caller else {
        return Tallies::default();
    };
    let sample = console.0.samples.recent(console, &caller.actor).await;
    let tallies = sample.as_deref().map(Tallies::of).unwrap_or_default();
    Tallies {
        has_settings: !console.0.effective.is_empty(),
        has_catalogue: console.0.has_catalogue,
        ..tallies
    }
}

/// Renders the page of a response with its layout.
fn with_layout(
    page_request: &PageRequest,
    tallies: &Tallies,
    page: Page,
    inner: Response,
) -> Response {
    let status = page.status;
    document(status, layout::render(page_request, tallies, page), inner)
}

/// Replaces the body of a response with a document. Its other headers, such as a cookie, are kept.
pub(crate) fn document(status: StatusCode, html: String, inner: Response) -> Response {
    let (mut parts, _) = inner.into_parts();
    parts.status = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, kind);
    Response::from_parts(parts, html.into())
}

/// The cookie of the console, if it has the form that [`session::mint`] gives it.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let value = cookie_named(headers, COOKIE)?;
    (value.len() == COOKIE_LENGTH).then(|| value.to_owned())
}

/// The first cookie with a name.
pub(crate) fn cookie_named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut found = pairs.filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = found.find(|(known, _)| *known == name)?;
    Some(value)
}

/// Sets the cookie of the console, for as long as a session may last.
pub(crate) fn set_cookie(console: &Console, response: &mut Response, cookie: &str) {
    let secure = if console.0.https { "; Secure" } else { "" };
    let age = LIFE.as_secs();
    let text =
        format!("{COOKIE}={cookie}; Path={BASE}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    let value = HeaderValue::from_str(&text).expect("base64 is visible ASCII");
    response.headers_mut().insert(header::SET_COOKIE, value);
}

/// Sets the headers that protect against other sites. Only static files may be cached.
fn set_security_headers(headers: &mut HeaderMap) {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With a stricter policy, browsers do not send the origin of a form.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-opener-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_form_that_does_not_come_is_not_waited_for() {
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let began = Instant::now();
        let refused = read_form(silent).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(began.elapsed() < Duration::from_secs(11));
    }

    #[tokio::test]
    async fn a_form_is_bounded() {
        let most = vec![b'a'; FORM_BYTES_MAX];
        assert_eq!(read_form(Body::from(most.clone())).await.unwrap(), most);
        let refused = read_form(Body::from([&most[..], b"a"].concat())).await;
        let refused = refused.unwrap_err().status();
        assert_eq!(refused, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
