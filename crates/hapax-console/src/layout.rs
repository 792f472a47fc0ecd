//! Page layout: header, filter, and the signed-in caller.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::{
    act,
    assets::{ICON, SCRIPT, STYLE},
    auth::Role,
    guard::{LOGOUT, PageRequest},
    html::{Element, Html, el, link},
    navigation::{self, Tallies},
};

/// A page without its layout.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) title: String,
    pub(crate) filter: Option<FilterBox>,
    pub(crate) body: Html,
}

/// The filter of a page.
#[derive(Clone, Debug)]
pub(crate) struct FilterBox {
    /// The text.
    pub(crate) text: String,
    /// The error in it.
    pub(crate) wrong: Option<String>,
    /// Examples of terms that can be used.
    pub(crate) hint: Html,
}

impl Page {
    /// A page with status 200.
    pub(crate) fn new(title: impl Into<String>, body: Html) -> Self {
        Self {
            status: StatusCode::OK,
            title: title.into(),
            filter: None,
            body,
        }
    }

    /// Adds a filter.
    pub(crate) fn filtered(mut self, filter: FilterBox) -> Self {
        self.filter = Some(filter);
        self
    }

    /// An error page.
    pub(crate) fn problem(status: StatusCode, title: impl Into<String>, why: &str) -> Self {
        let body = Html::default().add(el("p").class("problem").attr("role", "alert").add(why));
        Self {
            status,
            ..Self::new(title, body)
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Renders the document.
pub(crate) fn render(page_request: &PageRequest, tallies: &Tallies, page: Page) -> String {
    let Page {
        title,
        filter,
        body,
        ..
    } = page;
    let main = el("main")
        .attr("id", "main")
        .attr("tabindex", "-1")
        .add(el("h1").add(&title))
        .add(notice(page_request))
        .add(filter.map(|filter| filter_form(page_request, filter)))
        .add(el("div").attr("id", "results").add(body));
    let has_caller = page_request.caller.is_some();
    let navigation = has_caller.then(|| navigation::pages(&page_request.path, tallies));
    let skip = link("#main", "Skip to the content").class("skip");
    let inside = el("body")
        .add(skip)
        .add(header(page_request))
        .add(navigation)
        .add(main)
        .add(has_caller.then(|| help(tallies)));
    let files = Files {
        icon: &ICON.path,
        styles: &[&STYLE.path],
        script: &SCRIPT.path,
    };
    document(&format!("{title} – Hapax"), &files, inside)
}

/// The paths of the static files of a document.
pub(crate) struct Files<'a> {
    pub(crate) icon: &'a str,
    pub(crate) styles: &'a [&'a str],
    pub(crate) script: &'a str,
}

/// Renders a document with this body.
pub(crate) fn document(title: &str, files: &Files<'_>, body: Element) -> String {
    let meta = |name: &str, content: &str| el("meta").attr("name", name).attr("content", content);
    let style = |path: &&str| el("link").attr("rel", "stylesheet").attr("href", path);
    let icon = el("link")
        .attr("rel", "icon")
        .attr("href", files.icon)
        .attr("type", "image/svg+xml");
    let head = el("head")
        .add(el("meta").attr("charset", "utf-8"))
        .add(meta("viewport", "width=device-width, initial-scale=1"))
        .add(meta("color-scheme", "light dark"))
        .add(el("title").add(title))
        .add(icon)
        .all(files.styles.iter().map(style))
        .add(el("script").attr("src", files.script));
    let html = el("html").attr("lang", "en").add(head).add(body);
    Html::default()
        .add(html)
        .into_string()
        .replacen("<html", "<!doctype html><html", 1)
}

/// The result of the action that led to this page.
fn notice(page_request: &PageRequest) -> Option<Element> {
    let said = act::notice(&page_request.fields)?;
    Some(el("p").class("told").attr("role", "status").add(said))
}

fn header(page_request: &PageRequest) -> Element {
    let name = el("a")
        .attr("href", "/console")
        .class("name")
        .add("Hapax")
        .add(el("span").class("soft").add(" console"));
    let live = el("span")
        .attr("id", "live")
        .attr("role", "status")
        .class("live")
        .add("");
    let theme = el("button")
        .attr("type", "button")
        .attr("id", "theme")
        .flag("hidden", true)
        .add("Dark");
    let keys = el("button")
        .attr("type", "button")
        .attr("id", "keys")
        .flag("hidden", true)
        .add("Shortcuts ")
        .add(el("kbd").add("?"));
    el("header")
        .add(name)
        .add(live)
        .add(el("span").class("grow"))
        .add(page_request.caller.as_ref().map(|_| keys))
        .add(theme)
        .add(page_request.caller.is_some().then(|| who(page_request)))
}

fn who(page_request: &PageRequest) -> Html {
    let caller = page_request.caller();
    let role = match caller.role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
    };
    let of = caller.actor.tenant.as_ref();
    let of = of.map(|tenant| format!(" of {}", tenant.as_str()));
    let name = el("span")
        .class("who")
        .add(&caller.actor.name)
        .add(el("span").class("soft").add(format!(" {role}")).add(of));
    let out = page_request.signs_in.then(|| {
        el("form")
            .attr("method", "post")
            .attr("action", LOGOUT)
            .add(sealed(page_request))
            .add(el("button").attr("type", "submit").add("Sign out"))
    });
    Html::default().add(name).add(out)
}

fn filter_form(page_request: &PageRequest, filter: FilterBox) -> Element {
    let FilterBox { text, wrong, hint } = filter;
    let input = el("input")
        .attr("id", "filter")
        .attr("name", "q")
        .attr("type", "search")
        .attr("value", &text)
        .attr("autocomplete", "off")
        .attr("autocapitalize", "off")
        .attr("spellcheck", "false")
        .attr("aria-describedby", "filter-note");
    let input = if wrong.is_some() {
        input.attr("aria-invalid", "true")
    } else {
        input
    };
    let note = el("p").attr("id", "filter-note").attr("role", "status");
    let note = match wrong {
        Some(wrong) => note.class("wrong").add(wrong),
        None => note.class("soft").add(hint),
    };
    let row = el("div")
        .class("row")
        .add(
            el("label")
                .attr("for", "filter")
                .add("Filter ")
                .add(el("kbd").add("/")),
        )
        .add(input)
        .add(el("button").attr("type", "submit").add("Apply"));
    el("form")
        .attr("method", "get")
        .attr("action", &page_request.path)
        .attr("role", "search")
        .attr("id", "filter-form")
        .add(row)
        .add(note)
}

/// The form field that protects against CSRF.
pub(crate) fn sealed(page_request: &PageRequest) -> Element {
    el("input")
        .attr("type", "hidden")
        .attr("name", "seal")
        .attr("value", &page_request.csrf_token)
}

fn help(tallies: &Tallies) -> Element {
    let line = |keys: &str, what: &str| {
        let keys = keys.split(' ').map(|key| el("kbd").add(key));
        el("div")
            .add(el("dt").all(keys))
            .add(el("dd").add(what.to_owned()))
    };
    let own = [
        line("/", "to the filter"),
        line("Esc", "clear the filter"),
        line("j k", "next, previous row"),
        line("Enter", "open the row"),
        line("x", "select the row"),
        line("?", "show this help"),
    ];
    let places = navigation::places(tallies);
    let places = places.map(|(key, _, name)| line(&format!("g {key}"), name));
    el("dialog")
        .attr("id", "help")
        .attr("aria-labelledby", "help-title")
        .add(el("h2").attr("id", "help-title").add("Keyboard shortcuts"))
        .add(el("dl").all(own).all(places))
        .add(
            el("form")
                .attr("method", "dialog")
                .add(el("button").add("Close")),
        )
}
