//! `/console/reference`: the reference pages of this version.

use axum::extract::Path;
use http::StatusCode;

use super::Shown;
use crate::{
    format::{cell, nothing, open},
    guard::PageRequest,
    html::{Html, el},
    layout::{FilterBox, Page},
    markdown,
};

/// The pages: name, title and text.
const PAGES: [(&str, &str, &str); 8] = [
    (
        "http",
        "The HTTP contract",
        include_str!("../../reference/http.md"),
    ),
    ("cli", "Commands", include_str!("../../reference/cli.md")),
    (
        "configuration",
        "Configuration",
        include_str!("../../reference/configuration.md"),
    ),
    (
        "errors",
        "Errors",
        include_str!("../../reference/errors.md"),
    ),
    (
        "metrics",
        "Metrics",
        include_str!("../../reference/metrics.md"),
    ),
    (
        "admin-api",
        "Admin API",
        include_str!("../../reference/admin-api.md"),
    ),
    (
        "sql-contract",
        "The SQL contract",
        include_str!("../../reference/sql-contract.md"),
    ),
    (
        "limits",
        "Limits",
        include_str!("../../reference/limits.md"),
    ),
];

/// Lists the pages.
pub(crate) async fn list() -> Page {
    let item = |(name, title, _): &(&str, &str, &str)| {
        el("li").add(open(&format!("/console/reference/{name}"), *title))
    };
    let list = el("ul").class("links").all(PAGES.iter().map(item));
    Page::new("Reference", Html::default().add(list))
}

/// Shows a page, or the parts that contain all words of the filter.
pub(crate) async fn show(page_request: PageRequest, Path(name): Path<String>) -> Shown {
    let found = PAGES.iter().find(|(known, _, _)| *known == name);
    let Some((_, title, text)) = found else {
        let why = "There is no such page in the reference.";
        return Ok(Page::problem(StatusCode::NOT_FOUND, "Not found", why));
    };
    let q = page_request.fields.text("q");
    let words: Vec<String> = q
        .to_lowercase()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let said = markdown::render(text, &words, &leads_to);
    let body = if said.is_empty() {
        cell(nothing("Nothing on this page contains all of these words."))
    } else {
        cell(el("div").class("prose").add(said))
    };
    let filter = FilterBox {
        text: q.to_owned(),
        wrong: None,
        hint: cell("Words: only parts that contain all of them are shown."),
    };
    Ok(Page::new(*title, body).filtered(filter))
}

/// The target of a link inside the console; `None` if it does not exist here.
fn leads_to(target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let heading = if heading.is_empty() {
        String::new()
    } else {
        format!("#{heading}")
    };
    if file.is_empty() {
        return Some(heading);
    }
    let name = file.strip_suffix(".md")?;
    let known = PAGES.iter().any(|(known, _, _)| *known == name);
    known.then(|| format!("/console/reference/{name}{heading}"))
}
