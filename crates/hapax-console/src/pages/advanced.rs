//! `/console/advanced`: jobs, the audit log, and where tuning is explained.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{AuditEntry, AuditFilter, Job, JobFilter, JobKind},
};

use super::{
    ROWS, Shown, audit,
    list::Listing,
    query::{ListQuery, PageQualifiers},
    reference::{self, TUNING},
};
use crate::{
    Console,
    fields::url,
    filter::Qualifier,
    format::{badge, cell, code, none, number, open, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    table::Table,
};

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Actor,
        Qualifier::Action,
        Qualifier::Object,
        Qualifier::Dest,
        Qualifier::State,
    ],
    words: None,
    state: "waiting",
};

static JOBS: Listing = Listing {
    one: "job",
    empty: "There are no jobs. A job appears here when an operator replays or discards many dead \
            letters, delivers events again, or removes a destination.",
};

const STATES: [&str; 5] = ["waiting", "running", "done", "cancelled", "failed"];

/// Shows both. `dest` and `state` apply to jobs, the other qualifiers to the audit log.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let (actor, now) = (&page_request.caller().actor, console.0.clock.now());
    let state = query.state(&STATES, |it| it);
    let mut body = Html::default();
    if query.is_right() {
        let is_all = query.text.trim().is_empty();
        let jobs = JobFilter {
            destination: query.filter.one(Qualifier::Dest).map(str::to_owned),
            state: state.map(str::to_owned),
        };
        let jobs = console.store().jobs(actor, &jobs, None, ROWS).await?;
        let jobs = table_of(&page_request, &jobs.items, now);
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
        let queries = console.queries();
        let row = |it: &AuditEntry| audit::row(queries, it, now);
        let log = audit::ENTRIES.listed(&page_request, &query.text, audit::table(), &log, row);
        body = body
            .add(el("h2").add("Jobs"))
            .add(JOBS.table(jobs, is_all, false))
            .add(el("h2").add("Audit log"))
            .add(log)
            .add(el("h2").add("Tuning"))
            .add(tuning());
    }
    Ok(Page::new("Jobs and audit", body).filtered(query.into_box()))
}

/// The links to what determines the speed of relays and consumers.
fn tuning() -> Element {
    let item = |to: &str, what: &str| el("li").add(open(to, what));
    el("ul")
        .class("links")
        .add(item(&reference::path(TUNING), "Tune pollers and consumers"))
        .add(item(
            "/console/configuration",
            "The settings of this process",
        ))
        .add(item(
            "/console/destinations",
            "The lag and the rate of each destination",
        ))
}

fn table_of(page_request: &PageRequest, jobs: &[Job], now: Timestamp) -> Table {
    let heads = &[
        "#Job",
        "Operation",
        "Destination",
        "State",
        "#Done",
        "Actor",
        "Created",
        "Note",
    ];
    let mut table = Table::new("Jobs", heads);
    for it in jobs {
        let of = it.total.map(|total| format!(" of {}", number(total)));
        table.row([
            cell(it.id),
            cell(it.kind.as_str().replace('_', " ")),
            code(Some(&it.destination)),
            cell(badge(&it.state)),
            cell(number(it.done)).add(of),
            code(Some(&it.actor)),
            cell(time(it.created_at, now)),
            note(page_request, it),
        ]);
    }
    table
}

/// The error of a job, why it left something unchanged, and the link that cancels it.
fn note(page_request: &PageRequest, it: &Job) -> Html {
    let mut note = Html::default();
    if it.error.is_some() {
        note = note.add(code(it.error.as_deref()));
    }
    if let Some((count, why)) = it.skipped() {
        note = note.add(format!("{} unchanged: {why}.", number(count)));
    }
    if it.state == "waiting" {
        note = note.add("Waits for a relay, which runs it. ");
    }
    let runs = it.ended_at.is_none() && it.kind != JobKind::RemoveDestination;
    if page_request.acts() && runs {
        let id = it.id.to_string();
        let to = url("/console/act", &[("act", "cancel"), ("job", &id)]);
        note = note.add(link(&to, "Cancel").class("button"));
    }
    if note.is_empty() { none() } else { note }
}
