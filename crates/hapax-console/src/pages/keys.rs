//! `/console/keys`: idempotency keys, latest claims first.

use axum::extract::State;
use hapax::admin::{KeyFilter, KeyState, KeySummary};

use super::{
    ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{badge, cell, code, none, open, size, time},
    guard::PageRequest,
    html::{Html, el},
    layout::Page,
    table::Table,
};

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Key,
        Qualifier::Operation,
        Qualifier::State,
        Qualifier::Tenant,
        Qualifier::Age,
    ],
    words: Some("the beginning of a key, or of its short hash after a #"),
    state: "in_progress",
};

static KEYS: Listing = Listing {
    one: "key",
    empty: "There are no idempotency keys. A key appears here when a request with the header \
            Idempotency-Key arrives, and stays until it expires.",
};

/// Lists keys.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let now = console.0.clock.now();
    let (since, until) = query.moments(now);
    let filter = KeyFilter {
        operation: query.filter.one(Qualifier::Operation).map(str::to_owned),
        key: query.one_or_word(Qualifier::Key),
        tenant: query.tenant(),
        state: query.state(&KeyState::ALL, |it| it.as_str()),
        since,
        until,
    };
    let mut body = Html::default();
    if query.is_right() {
        let before = page_request.fields.get("before");
        let actor = &page_request.caller().actor;
        let page = console.store().keys(actor, &filter, before, ROWS).await?;
        let heads = &[
            "Key",
            "Operation",
            "State",
            "#Status",
            "#Size",
            "Claimed",
            "Expires",
            "Tenant",
        ];
        let row = |it: &KeySummary| {
            let fields = [
                ("key", it.key.as_str()),
                ("operation", &it.operation),
                ("tenant", &it.tenant),
            ];
            let to = url("/console/timeline", &fields);
            let hash = el("span")
                .class("soft line")
                .add(format!("#{}", it.short_hash));
            [
                cell(open(&to, code(Some(&it.key)))).add(" ").add(hash),
                code(Some(&it.operation)),
                cell(badge(it.state.as_str())),
                it.status
                    .map_or_else(none, |status| cell(u32::from(status))),
                cell(size(it.body_bytes)),
                cell(time(it.created_at, now)),
                cell(time(it.expires_at, now)),
                code(Some(&it.tenant)),
            ]
        };
        let table = Table::new("Keys", heads);
        body = KEYS.listed(&page_request, &query.text, table, &page, row);
    }
    Ok(Page::new("Keys", body).filtered(query.into_box()))
}
