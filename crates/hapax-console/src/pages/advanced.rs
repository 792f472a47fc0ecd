//! `/console/advanced`: jobs and the audit log.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{AuditEntry, AuditFilter, Job, JobFilter, JobKind},
};

use super::{
    ROWS, Shown,
    events::{list_of, listed},
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{Table, badge, cell, code, none, number, time},
    guard::PageRequest,
    html::{Html, el, link},
    layout::Page,
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
        let jobs = JobFilter {
            destination: query.filter.one(Qualifier::Dest).map(str::to_owned),
            state: state.map(str::to_owned),
        };
        let jobs = console.store().jobs(actor, &jobs, None, ROWS).await?;
        let acts = AuditFilter {
            actor: query.filter.one(Qualifier::Actor).map(str::to_owned),
            action: query.filter.one(Qualifier::Action).map(str::to_owned),
            object: query.filter.one(Qualifier::Object).map(str::to_owned),
        };
        let before = page_request.fields.get("before");
        let log = console
            .store()
            .audit_log(actor, &acts, before, ROWS)
            .await?;
        let heads = &["When", "Who", "Did", "To", "Outcome", "More"];
        let row = |it: &AuditEntry| {
            let more = Some(it.detail.to_string()).filter(|it| it != "{}");
            [
                cell(time(it.at, now)),
                code(Some(&it.actor)),
                cell(&it.action),
                code(Some(&it.object)),
                cell(badge(&it.outcome)),
                code(more.as_deref()),
            ]
        };
        let log_table = Table::new("Audit log", heads);
        let log = listed(&page_request, &query.text, "act", log_table, &log, row);
        body = body
            .add(el("h2").add("Jobs"))
            .add(list_of(
                table_of(&page_request, &jobs.items, now),
                false,
                "job",
            ))
            .add(el("h2").add("Audit log"))
            .add(log);
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
        let runs = it.ended_at.is_none() && it.kind != JobKind::RemoveDestination;
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
