//! `/console/inbox`: received messages, newest first.

use axum::extract::State;
use hapax::admin::{Message, MessageFilter};

use super::{
    ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{cell, code, none, open, time},
    guard::PageRequest,
    html::{Html, el},
    layout::Page,
    table::Table,
};

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Consumer,
        Qualifier::Source,
        Qualifier::Id,
        Qualifier::Age,
    ],
    words: Some("the id of a message"),
    state: "",
};

static MESSAGES: Listing = Listing {
    one: "message",
    empty: "There are no messages. A message appears here when a consumer of this database accepts \
            it, and stays until it is purged.",
};

/// Lists messages.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let now = console.0.clock.now();
    let (since, until) = query.moments(now);
    let filter = MessageFilter {
        consumer: query.filter.one(Qualifier::Consumer).map(str::to_owned),
        source: query.filter.one(Qualifier::Source).map(str::to_owned),
        message_id: query.one_or_word(Qualifier::Id),
        since,
        until,
    };
    let mut body = Html::default();
    if query.is_right() {
        let before = page_request.fields.get("before");
        let actor = &page_request.caller().actor;
        let page = console.store().messages(actor, &filter, before, ROWS);
        let page = page.await?;
        let heads = &[
            "Message",
            "Consumer",
            "Source",
            "Received",
            "Processed",
            "Result",
        ];
        let row = |it: &Message| {
            // A message that is an event of this database has a timeline.
            let id = code(Some(&it.message_id));
            let id = if it.message_id.parse::<hapax::event::EventId>().is_ok() {
                let to = url("/console/timeline", &[("event", &it.message_id)]);
                cell(open(&to, id))
            } else {
                id
            };
            [
                id,
                code(Some(&it.consumer)),
                code(Some(&it.source)),
                cell(time(it.received_at, now)),
                it.processed_at.map_or_else(none, |at| cell(time(at, now))),
                code(it.result.as_deref()),
            ]
        };
        let table = Table::new("Messages", heads);
        body = MESSAGES.listed(&page_request, &query.text, table, &page, row);
        if actor.tenant.is_some() {
            let said = "Messages have no tenant: a token of a tenant sees none.";
            body = body.add(el("p").class("soft").add(said));
        }
    }
    Ok(Page::new("Inbox", body).filtered(query.into_box()))
}
