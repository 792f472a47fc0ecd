//! `/console/login`: exchanges a token for a session, with a delayed response to a wrong one.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderValue, StatusCode, header};

use crate::{
    BASE, Console,
    guard::{LOGIN, PageRequest, set_cookie},
    html::{Html, el},
    layout::{Page, sealed},
    rate_limit::WAIT,
};

/// Shows the sign-in form.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Response {
    if console.0.tokens.is_empty() || page_request.caller.is_some() {
        return Redirect::to(BASE).into_response();
    }
    form(&page_request, None).into_response()
}

/// Checks the token.
pub(crate) async fn sign_in(State(console): State<Console>, page_request: PageRequest) -> Response {
    let found = console
        .0
        .tokens
        .find(page_request.fields.text("token").trim().as_bytes());
    let Some(caller) = found else {
        return refuse(&console, &page_request).await;
    };
    tracing::info!(actor = caller.actor.name, "signed in to the console");
    let cookie = console.0.sessions.begin(caller.clone());
    let mut response = Redirect::to(next(&page_request)).into_response();
    set_cookie(&console, &mut response, &cookie);
    response
}

async fn refuse(console: &Console, page_request: &PageRequest) -> Response {
    let rate_limit = &console.0.rate_limit;
    if let Some(count) = rate_limit.count(console.0.clock.now()) {
        tracing::warn!(count, "wrong tokens were entered in the console");
    }
    if rate_limit.wait().await {
        let mut page = form(page_request, Some("The token is not valid."));
        page.status = StatusCode::UNAUTHORIZED;
        return page.into_response();
    }
    let mut page = form(page_request, Some("Too many wrong tokens: try again."));
    page.status = StatusCode::TOO_MANY_REQUESTS;
    let seconds = HeaderValue::from(WAIT.as_secs());
    let mut response = page.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Ends the session.
pub(crate) async fn sign_out(
    State(console): State<Console>,
    page_request: PageRequest,
) -> Response {
    console.0.sessions.end(&page_request.cookie);
    let mut response = Redirect::to(LOGIN).into_response();
    set_cookie(&console, &mut response, &crate::session::mint());
    response
}

fn form(page_request: &PageRequest, wrong: Option<&str>) -> Page {
    let input = el("input")
        .attr("id", "token")
        .attr("name", "token")
        .attr("type", "password")
        .attr("autocomplete", "current-password")
        .flag("required", true)
        .flag("autofocus", true);
    let wrong = wrong.map(|wrong| el("p").class("wrong").attr("role", "alert").add(wrong));
    let hidden = el("input")
        .attr("type", "hidden")
        .attr("name", "next")
        .attr("value", next(page_request));
    let form = el("form")
        .attr("method", "post")
        .attr("action", LOGIN)
        .class("act")
        .add(sealed(page_request))
        .add(hidden)
        .add(wrong)
        .add(el("label").attr("for", "token").add("Token"))
        .add(input)
        .add(
            el("p")
                .class("soft")
                .add("One of the tokens of operators in the configuration of this process."),
        )
        .add(
            el("button")
                .attr("type", "submit")
                .class("main")
                .add("Sign in"),
        );
    Page::new("Sign in", Html::default().add(form))
}

/// The page to open after signing in. It must be a page of this console.
fn next(page_request: &PageRequest) -> &str {
    let next = page_request.fields.text("next");
    let rest = next.strip_prefix(BASE);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    let is_plain = next
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own && is_plain && !next.starts_with(LOGIN) {
        next
    } else {
        BASE
    }
}
