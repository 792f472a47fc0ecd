//! `/console/advanced`: jobs and the audit log.

use axum::extract::State;
use hapax::Timestamp;

use super::{
    ROWS, Shown,
    events::list_of,
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{Table, badge, cell, code, none, number, pager, time},
    guard::PageRequest,
    html::{Html, el, link},
    layout::Page,
    queries::{
        audit::Acts,
        jobs::{Job, Kind},
    },
};

static KNOWN: Known = Known {
    qualifiers: &[
        Qualifier::Actor,
        Qualifier::Action,
        Qualifier::Object,
        Qualifier::Dest,
        Qualifier::State,
    ],
    words: None,
};

const STATES: [&str; 5] = ["waiting", "running", "done", "cancelled", "failed"];

/// Shows both. `dest` and `state` apply to jobs, the other qualifiers to the audit log.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let (actor, now) = (&page_request.caller().actor, console.0.clock.now());
    let state = query.state(&STATES, |it| it);
    let mut body = Html::default();
    if query.is_right() {
        let dest = query.filter.one(Qualifier::Dest);
        let jobs = console
            .queries()
            .jobs(actor, dest, state, None, ROWS)
            .await?;
        let acts = Acts {
            actor: query.filter.one(Qualifier::Actor).map(str::to_owned),
            action: query.filter.one(Qualifier::Action).map(str::to_owned),
            object: query.filter.one(Qualifier::Object).map(str::to_owned),
        };
        let before = page_request
            .fields
            .get("before")
            .and_then(|it| it.parse().ok());
        let log = console.queries().audit(actor, &acts, before, ROWS).await?;
        let mut lines = Table::new(
            "Audit log",
            &["When", "Who", "Did", "To", "Outcome", "More"],
        );
        for it in &log.items {
            lines.row([
                cell(time(it.at, now)),
                code(Some(&it.actor)),
                cell(&it.action),
                code(Some(&it.object)),
                cell(badge(&it.outcome)),
                code(
                    Some(&it.detail)
                        .filter(|it| *it != "{}")
                        .map(String::as_str),
                ),
            ]);
        }
        let next = log.next.map(|next| next.to_string());
        let before = page_request.fields.text("before");
        body = body
            .add(el("h2").add("Jobs"))
            .add(list_of(
                table_of(&page_request, &jobs.items, now),
                false,
                "job",
            ))
            .add(el("h2").add("Audit log"))
            .add(list_of(lines, false, "act"))
            .add(pager(
                "/console/advanced",
                &query.text,
                before,
                next.as_deref(),
            ));
    }
    Ok(Page::new("Jobs and audit", body).filtered(query.into_box()))
}

fn table_of(page_request: &PageRequest, jobs: &[Job], now: Timestamp) -> Table {
    let heads = &[
        "#Job",
        "Does",
        "Destination",
        "State",
        "#Done",
        "By",
        "Asked",
        "Error",
        "Act",
    ];
    let mut table = Table::new("Jobs", heads);
    for it in jobs {
        let of = it.total.map(|total| format!(" of {}", number(total)));
        let runs = it.ended_at.is_none() && it.kind != Kind::Remove;
        let cancel = (page_request.acts() && runs).then(|| {
            let id = it.id.to_string();
            let to = url("/console/act", &[("act", "cancel"), ("job", &id)]);
            link(&to, "Cancel").class("button")
        });
        table.row([
            cell(it.id),
            cell(it.kind.as_str().replace('_', " ")),
            code(Some(&it.destination)),
            cell(badge(&it.state)),
            cell(number(it.done)).add(of),
            code(Some(&it.actor)),
            cell(time(it.created_at, now)),
            code(it.error.as_deref()),
            cancel.map_or_else(none, cell),
        ]);
    }
    table
}
