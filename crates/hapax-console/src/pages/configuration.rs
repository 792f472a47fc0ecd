//! `/console/configuration`: the effective settings, their meanings and their sources.

use axum::extract::State;

use super::{Shown, reference};
use crate::{
    Console, Setting,
    fields::url,
    format::{cell, code, nothing, open},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::{FilterBox, Page},
    table::Table,
};

/// Shows the settings. The filter consists of words.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let text = page_request.fields.text("q");
    let explained_in = console.0.explained_in;
    let heads = &["Setting", "Value", "From", "Meaning"];
    let mut table = Table::new("Settings in force", heads);
    // A caller of a tenant does not see the settings of the host.
    let all = &console.0.effective;
    let all = all
        .iter()
        .filter(|_| page_request.caller().actor.tenant.is_none());
    for it in all {
        let said = format!("{} {} {}", it.name, it.value, it.origin).to_lowercase();
        if text
            .to_lowercase()
            .split_whitespace()
            .all(|word| said.contains(word))
        {
            table.row(row(it, explained_in));
        }
    }
    let list = if table.is_empty() {
        cell(nothing(if console.0.effective.is_empty() {
            "The process of this console passes no settings to it."
        } else {
            "No setting matches the filter."
        }))
    } else {
        cell(table)
    };
    let filter = FilterBox {
        text: text.to_owned(),
        wrong: None,
        hint: cell("Words in a setting, its value or its origin."),
    };
    let body = Html::default().add(list).add(note(explained_in, text));
    Ok(Page::new("Configuration", body).filtered(filter))
}

/// A setting, with a link to its place in the reference.
fn row(it: &Setting, explained_in: Option<&str>) -> [Html; 4] {
    let found = explained_in.and_then(|page| {
        let (name, meaning) = reference::meaning(page, &it.name)?;
        let to = url(&reference::path(page), &[("q", &name)]);
        Some((cell(open(&to, code(Some(&it.name)))), meaning))
    });
    let (name, meaning) = found.unwrap_or_else(|| (code(Some(&it.name)), Html::default()));
    [name, code(Some(&it.value)), cell(&it.origin), meaning]
}

/// Where the settings are explained: the parts of that page that the filter shows here.
fn note(explained_in: Option<&str>, text: &str) -> Element {
    let note = el("p").class("soft").add("Secrets are hidden.");
    let Some(page) = explained_in else {
        return note;
    };
    let to = url(&reference::path(page), &[("q", text)]);
    note.add(" ").add(link(&to, "What each setting means"))
}
