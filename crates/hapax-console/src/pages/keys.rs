//! `/console/keys`: idempotency keys, latest claims first.

use axum::extract::State;

use super::{
    ROWS, Shown,
    events::list_of,
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{Table, badge, cell, code, none, open, pager, size, time},
    guard::PageRequest,
    html::{Html, el},
    layout::Page,
    queries::keys::{Keys, State as KeyState},
};

static KNOWN: Known = Known {
    qualifiers: &[
        Qualifier::Key,
        Qualifier::Operation,
        Qualifier::State,
        Qualifier::Tenant,
        Qualifier::Age,
    ],
    words: Some("the beginning of a key, or of its short hash after a #"),
};

/// Lists keys.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let now = console.0.clock.now();
    let (since, until) = query.moments(now);
    let filter = Keys {
        operation: query.filter.one(Qualifier::Operation).map(str::to_owned),
        key: query.one_or_word(Qualifier::Key),
        tenant: query.tenant(),
        state: query.state(&KeyState::ALL, |it| it.as_str()),
        since,
        until,
    };
    let mut body = Html::default();
    if query.is_right() {
        let before = page_request
            .fields
            .get("before")
            .and_then(|it| it.parse().ok());
        let actor = &page_request.caller().actor;
        let page = console
            .queries()
            .keys(actor, &filter, before.as_ref(), ROWS)
            .await?;
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
        let mut table = Table::new("Keys", heads);
        for it in &page.items {
            let fields = [
                ("key", it.key.as_str()),
                ("operation", &it.operation),
                ("tenant", &it.tenant),
            ];
            let to = url("/console/timeline", &fields);
            let name = open(&to, el("code").class("break").add(&it.key));
            let hash = el("span").class("soft").add(format!(" #{}", it.short_hash));
            table.row([
                cell(name).add(hash),
                code(Some(&it.operation)),
                cell(badge(it.state.as_str())),
                it.status
                    .map_or_else(none, |status| cell(u32::from(status))),
                cell(size(it.body_bytes)),
                cell(time(it.created_at, now)),
                cell(time(it.expires_at, now)),
                code(Some(&it.tenant)),
            ]);
        }
        let next = page.next.map(|next| next.to_string());
        body = list_of(table, next.is_some(), "key");
        let before = page_request.fields.text("before");
        body = body.add(pager("/console/keys", &query.text, before, next.as_deref()));
    }
    Ok(Page::new("Keys", body).filtered(query.into_box()))
}
