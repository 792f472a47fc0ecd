//! `/console/configuration`: the effective settings and their sources.

use axum::extract::State;

use super::Shown;
use crate::{
    Console,
    format::{cell, code, nothing},
    guard::PageRequest,
    html::{Html, el, link},
    layout::{FilterBox, Page},
    table::Table,
};

/// Shows the settings. The filter consists of words.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let text = page_request.fields.text("q");
    let mut table = Table::new("Settings in force", &["Setting", "Value", "From"]);
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
            table.row([
                code(Some(&it.name)),
                code(Some(&it.value)),
                cell(&it.origin),
            ]);
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
    let note = el("p")
        .class("soft")
        .add("Secrets are hidden. The settings are described in ")
        .add(link("/console/reference/configuration", "the reference"))
        .add(".");
    let filter = FilterBox {
        text: text.to_owned(),
        wrong: None,
        hint: cell("Words in a setting, its value or its origin."),
    };
    let page = Page::new("Configuration", Html::default().add(list).add(note));
    Ok(page.filtered(filter))
}
