//! `/console/unknown`: requests of a gateway whose outcome is unknown, and one of them with the
//! possible decisions.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{
        KeyFilter, UnknownFilter, UnknownOutcome, UnknownReason, unknown_outcome, unknown_outcomes,
    },
    nearest,
};

use super::{
    ErrorPage, ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::url,
    filter::{Qualifier, Wrong},
    format::{badge, cell, code, facts, none, open, size, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    table::Table,
};

/// The list.
pub(crate) const LIST: &str = "/console/unknown";
const ONE: &str = "/console/unknown/request";

/// Whether an outcome waits for a decision, with its name in the filter.
const STATES: [(bool, &str); 2] = [(true, WAITING), (false, HELD)];
const WAITING: &str = "waiting";
const HELD: &str = "held";

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Key,
        Qualifier::Operation,
        Qualifier::State,
        Qualifier::Error,
        Qualifier::Tenant,
        Qualifier::Age,
    ],
    words: Some("the beginning of a key, or of its short hash after a #"),
    state: WAITING,
};

static OUTCOMES: Listing = Listing {
    one: "unknown outcome",
    empty: "There are no unknown outcomes. A request appears here when a gateway has sent it to \
            its service and has no complete response, until a retry finds out what happened or an \
            operator decides.",
};

/// Lists unknown outcomes, latest claims first.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let now = console.0.clock.now();
    let filter = filter_of(&mut query, now);
    let mut body = Html::default();
    if query.is_right() {
        let page = (page_request.fields.get("before"), ROWS);
        let actor = &page_request.caller().actor;
        let page = unknown_outcomes(console.store(), actor, &filter, page, now).await?;
        let heads = &[
            "Key",
            "Operation",
            "State",
            "Reason",
            "#Status",
            "Upstream",
            "Sent",
            "Tenant",
        ];
        let row = |it: &UnknownOutcome| {
            let (key, record) = (&it.key, &it.record);
            let hash = el("span")
                .class("soft line")
                .add(format!("#{}", key.short_hash));
            [
                cell(open(&path_of(it), code(Some(&key.key))))
                    .add(" ")
                    .add(hash),
                code(Some(&key.operation)),
                cell(state(it)),
                cell(record.reason.as_str().replace('_', " ")),
                record
                    .response_status
                    .map_or_else(none, |status| cell(u32::from(status))),
                code(Some(&record.upstream)),
                cell(time(record.sent_at, now)),
                code(Some(&key.tenant)),
            ]
        };
        let table = Table::new("Unknown outcomes", heads);
        body = OUTCOMES.listed(&page_request, &query.text, table, &page, row);
    }
    Ok(Page::new("Unknown outcomes", body).filtered(query.into_box()))
}

/// Shows one unknown outcome.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let fields = &page_request.fields;
    let (Some(operation), Some(key)) = (fields.get("operation"), fields.get("key")) else {
        return Err(ErrorPage::wrong(
            "The parameters operation and key are missing: they name the request.",
        ));
    };
    let (actor, tenant) = (&page_request.caller().actor, fields.get("tenant"));
    let found = unknown_outcome(console.store(), actor, tenant, operation, key);
    let (it, request_bytes) = found.await?;
    let now = console.0.clock.now();
    let decisions = (page_request.acts() && it.is_waiting).then(|| decisions(&it));
    let body = Html::default()
        .add(el("p").class("because").add(why(&it)))
        .add(decisions)
        .add(details(&it, request_bytes, now));
    Ok(Page::new(format!("Request {}", it.key.operation), body))
}

/// The page of one unknown outcome.
pub(crate) fn path_of(it: &UnknownOutcome) -> String {
    let key = &it.key;
    let fields = [
        ("tenant", key.tenant.as_str()),
        ("operation", &key.operation),
        ("key", &key.key),
    ];
    url(ONE, &fields)
}

fn filter_of(query: &mut ListQuery, now: Timestamp) -> UnknownFilter {
    let (since, until) = query.moments(now);
    let is_waiting = query.state(&STATES, |(_, name)| *name);
    UnknownFilter {
        keys: KeyFilter {
            operation: query.filter.one(Qualifier::Operation).map(str::to_owned),
            key: query.one_or_word(Qualifier::Key),
            tenant: query.tenant(),
            state: None,
            since,
            until,
        },
        reason: reason(query),
        upstream: None,
        is_waiting: is_waiting.map(|(is, _)| is),
    }
}

/// The reason that the filter names. Any other word is refused.
fn reason(query: &mut ListQuery) -> Option<UnknownReason> {
    let word = query.filter.one(Qualifier::Error)?.to_owned();
    let found = UnknownReason::named(&word);
    if found.is_none() {
        let words = UnknownReason::ALL.map(UnknownReason::as_str);
        let near = nearest(&word, words.iter().copied());
        let hint = near.map(|near| format!("; did you mean error:{near}?"));
        let (words, hint) = (words.join(", "), hint.unwrap_or_default());
        query.refuse(Wrong(format!(
            "error: must be one of {words}, not {word:?}{hint}"
        )));
    }
    found
}

fn state(it: &UnknownOutcome) -> Element {
    badge(if it.is_waiting { WAITING } else { HELD })
}

/// What is known, and what a retry gets.
fn why(it: &UnknownOutcome) -> String {
    if !it.is_waiting {
        return "A gateway has sent the request and still waits for the response, or it has died \
                and its lease has not expired yet."
            .to_owned();
    }
    format!(
        "The request was sent, but {}. It may have had its effect. It is not sent again until a \
         retry finds out what happened, if the route can, or an operator decides.",
        it.record.reason.sentence()
    )
}

/// The possible decisions.
fn decisions(it: &UnknownOutcome) -> Element {
    let button = |decision: &str, name: &'static str| {
        let key = &it.key;
        let fields = [
            ("act", "settle"),
            ("decision", decision),
            ("tenant", key.tenant.as_str()),
            ("operation", &key.operation),
            ("key", &key.key),
            ("version", &it.version),
        ];
        link(&url("/console/act", &fields), name).class("button")
    };
    el("p")
        .class("acts")
        .add(button("happened", "It happened"))
        .add(button("did_not_happen", "It did not happen"))
}

fn details(it: &UnknownOutcome, request_bytes: Option<u64>, now: Timestamp) -> Element {
    let (key, record) = (&it.key, &it.record);
    let timeline = [
        ("key", key.key.as_str()),
        ("operation", &key.operation),
        ("tenant", &key.tenant),
    ];
    let when = |at: Option<Timestamp>| at.map_or_else(Html::default, |at| cell(time(at, now)));
    let bytes = |bytes: Option<u64>| bytes.map_or_else(Html::default, |bytes| cell(size(bytes)));
    facts([
        ("State", cell(state(it))),
        (
            "Key",
            cell(open(
                &url("/console/timeline", &timeline),
                code(Some(&key.key)),
            )),
        ),
        (
            "Short hash",
            cell(el("code").add(format!("#{}", key.short_hash))),
        ),
        ("Operation", code(Some(&key.operation))),
        ("Tenant", code(Some(&key.tenant))),
        ("Upstream", code(Some(&record.upstream))),
        ("Reason", cell(record.reason.as_str().replace('_', " "))),
        ("Sent", cell(time(record.sent_at, now))),
        ("Noted", when(record.noted_at)),
        (
            "Status of the response",
            record
                .response_status
                .map_or_else(Html::default, |status| cell(u32::from(status))),
        ),
        ("Received of its body", bytes(record.response_bytes)),
        ("Stored request", bytes(request_bytes)),
        ("Held until", when(key.lease_until)),
        ("Owners so far", cell(key.epoch)),
        (
            "Fingerprint",
            cell(el("code").class("break").add(&key.fingerprint)),
        ),
    ])
}
