//! `/console/reference`: the reference pages of this version.

use std::borrow::Cow;

use axum::extract::Path;
use http::StatusCode;

use super::{Shown, explanation};
use crate::{
    fields::url,
    format::{cell, nothing, open},
    guard::PageRequest,
    html::{Html, el},
    layout::{FilterBox, Page},
    markdown,
};

/// A page: name, title and text.
type ReferencePage = (&'static str, &'static str, &'static str);

/// The pages.
static PAGES: [ReferencePage; 11] = [
    (
        "commands-by-purpose",
        "Commands by purpose",
        include_str!("../../reference/commands-by-purpose.md"),
    ),
    (
        "http",
        "The HTTP contract",
        include_str!("../../reference/http.md"),
    ),
    ("cli", "Commands", include_str!("../../reference/cli.md")),
    (
        "configuration",
        "Configuration of the shop",
        include_str!("../../reference/configuration.md"),
    ),
    (
        HAPAX,
        "Configuration of hapax",
        include_str!("../../reference/hapax-configuration.md"),
    ),
    (
        TUNING,
        "Tune pollers and consumers",
        include_str!("../../reference/tune-pollers-and-consumers.md"),
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
    (LIMITS, "Limits", include_str!("../../reference/limits.md")),
];
const HAPAX: &str = "hapax-configuration";
const LIMITS: &str = "limits";
/// The page about the settings that decide how fast events are delivered and messages processed.
pub(super) const TUNING: &str = "tune-pollers-and-consumers";

/// Lists the pages, or the parts of all pages that contain all words of the filter.
pub(crate) async fn list(page_request: PageRequest) -> Page {
    let words = words(&page_request);
    let body = if words.is_empty() {
        let item = |(name, title, _): &ReferencePage| el("li").add(open(&path(name), *title));
        cell(el("ul").class("links").all(PAGES.iter().map(item)))
    } else {
        let found = Html::all(PAGES.iter().filter_map(|page| excerpt(page, &words)));
        if found.is_empty() {
            cell(nothing("No section of a page contains all of these words."))
        } else {
            found
        }
    };
    Page::new("Reference", body).filtered(filter(&page_request))
}

/// Shows a page, or the parts that contain all words of the filter.
pub(crate) async fn show(page_request: PageRequest, Path(name): Path<String>) -> Shown {
    let Some(page) = find(&name) else {
        let why = "There is no such page in the reference.";
        return Ok(Page::problem(StatusCode::NOT_FOUND, "Not found", why));
    };
    let (_, title, _) = *page;
    let said = markdown::render(&text(page), &words(&page_request), &leads_from(page));
    let body = if said.is_empty() {
        cell(nothing("Nothing on this page contains all of these words."))
    } else {
        cell(el("div").class("prose").add(said))
    };
    Ok(Page::new(title, body).filtered(filter(&page_request)))
}

/// The setting's name on a page of the reference, and its meaning.
pub(super) fn meaning(page: &str, setting: &str) -> Option<(String, Html)> {
    let page = find(page)?;
    let (name, meaning) = explanation::find(&text(page), setting)?;
    let meaning = markdown::inline(&meaning, &leads_from(page));
    Some((name, meaning))
}

/// The path of a page.
pub(super) fn path(name: &str) -> String {
    format!("/console/reference/{name}")
}

fn find(name: &str) -> Option<&'static ReferencePage> {
    PAGES.iter().find(|(known, ..)| *known == name)
}

/// The text of a page. The book includes a file in two of them; here each setting or limit of the
/// file is a row of a table, so that it can be found.
fn text(page: &ReferencePage) -> Cow<'static, str> {
    let (name, _, text) = *page;
    let table = match name {
        HAPAX => explanation::table(include_str!("../../reference/hapax.default.toml")),
        LIMITS => explanation::constants(include_str!("../../reference/limits.rs")),
        _ => return Cow::Borrowed(text),
    };
    let (before, _) = text.split_once("```").unwrap_or((text, ""));
    Cow::Owned(format!("{before}{table}"))
}

/// The parts of a page that contain all words, below a link to the same parts on the page itself.
fn excerpt(page: &ReferencePage, words: &[String]) -> Option<Html> {
    let said = markdown::excerpt(&text(page), words, &leads_from(page));
    if said.is_empty() {
        return None;
    }
    let (name, title, _) = *page;
    let to = url(&path(name), &[("q", &words.join(" "))]);
    let heading = el("h2").add(open(&to, title));
    let said = el("div").class("prose").add(said);
    Some(Html::default().add(heading).add(said))
}

fn filter(page_request: &PageRequest) -> FilterBox {
    FilterBox {
        text: page_request.fields.text("q").to_owned(),
        wrong: None,
        hint: cell("Words: only parts that contain all of them are shown."),
    }
}

fn words(page_request: &PageRequest) -> Vec<String> {
    let text = page_request.fields.text("q").to_lowercase();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the targets of a page's links inside the console; `None` for what does not exist here.
fn leads_from(page: &ReferencePage) -> impl Fn(&str) -> Option<String> {
    let (page, ..) = *page;
    move |target| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let name = match file.strip_suffix(".md") {
            Some(path) => path.rsplit('/').next()?,
            None if file.is_empty() => page,
            None => return None,
        };
        let (known, ..) = find(name)?;
        let dash = if heading.is_empty() { "" } else { "#" };
        Some(format!("{}{dash}{heading}", path(known)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_rendered_without_a_leftover() {
        for page in &PAGES {
            let (name, text) = (page.0, text(page));
            let html = markdown::render(&text, &[], &leads_from(page)).into_string();
            assert!(html.len() > text.len() / 2, "{name}");
            for leftover in ["```", "](", "{{#"] {
                assert!(!html.contains(leftover), "{name}: {leftover}\n{html}");
            }
        }
    }
}
