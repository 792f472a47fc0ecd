//! `/console/sagas`: lists sagas, and shows one with its steps and the possible decisions.

use std::time::Duration;

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::SagaLook,
    key::Tenant,
    saga::{
        Decision, Direction, Filter, Refusal, SagaRecord, Signal, State as SagaState, StepRecord,
        StepState,
    },
};

use super::{
    ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{badge, cell, code, content, facts, name, open, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    queries::Queries,
    table::Table,
};

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[Qualifier::State, Qualifier::Saga],
    words: None,
    state: "needs_attention",
};

static SAGAS: Listing = Listing {
    one: "saga",
    empty: "There are no sagas. A saga appears here when a transaction that starts it is committed.",
};

/// Lists sagas by id.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let filter = Filter {
        name: query.filter.one(Qualifier::Saga).map(str::to_owned),
        version: None,
        state: query.state(&SagaState::ALL, |state| state.as_str()),
        after: page_request.fields.get("before").map(str::to_owned),
    };
    let mut body = Html::default();
    if query.is_right() {
        let actor = &page_request.caller().actor;
        let page = console.store().list_sagas(actor, &filter, ROWS).await?;
        let heads = &["Saga", "Kind", "State", "Why", "Started", "Tenant"];
        let row = |look: &SagaLook| {
            let saga = &look.saga;
            let id = code(Some(&saga.id));
            [
                cell(open(&path_of("/console/sagas", &saga.id), id)),
                cell(name(&format!("{} v{}", saga.kind.name, saga.kind.version))),
                cell(badge(saga.status.state.as_str())),
                cell(why(look)),
                cell(time(saga.created_at, look.at)),
                code(saga.tenant.as_ref().map(Tenant::as_str)),
            ]
        };
        let table = Table::new("Sagas", heads);
        body = SAGAS.listed(&page_request, &query.text, table, &page, row);
    }
    Ok(Page::new("Sagas", body).filtered(query.into_box()))
}

/// Shows one saga.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(id): Path<String>,
) -> Shown {
    let queries = console.queries();
    let look = console
        .store()
        .look_at_saga(&page_request.caller().actor, &id)
        .await?;
    let (saga, now) = (&look.saga, look.at);
    let details = facts([
        ("State", cell(badge(saga.status.state.as_str()))),
        (
            "Kind",
            cell(format!("{} version {}", saga.kind.name, saga.kind.version)),
        ),
        (
            "Compensating",
            cell(if saga.status.compensating {
                "yes"
            } else {
                "no"
            }),
        ),
        ("Tenant", code(saga.tenant.as_ref().map(Tenant::as_str))),
        ("Started", cell(time(saga.created_at, now))),
        ("Deadline", cell(time(saga.status.deadline_at, now))),
        (
            "Ended",
            saga.ended_at
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        ("Epoch", cell(saga.epoch)),
    ]);
    let decisions = (page_request.acts() && saga.status.state == SagaState::NeedsAttention)
        .then(|| decisions(saga, now));
    let body = Html::default()
        .add(el("p").class("because").add(why(&look)))
        .add(decisions)
        .add(details)
        .add(el("h2").add("Steps"))
        .add(steps(queries, saga, now))
        .add(el("h2").add("Input"))
        .add(content_of(queries, "Input", &saga.input))
        .add(signals(queries, saga, now));
    Ok(Page::new(format!("Saga {}", saga.id), body))
}

/// The possible decisions.
fn decisions(saga: &SagaRecord, now: Timestamp) -> Element {
    let epoch = saga.epoch.to_string();
    let button = |decision: &str, step: &str, name: String| {
        let fields = [
            ("act", "decide"),
            ("saga", saga.id.as_str()),
            ("decision", decision),
            ("step", step),
            ("epoch", epoch.as_str()),
        ];
        link(&url("/console/act", &fields), name).class("button")
    };
    let steps = saga.asked().map(|step| {
        let name = &step.name;
        let (happened, did_not) = match step.direction {
            Direction::Forward => (format!("{name} happened"), format!("{name} did not happen")),
            Direction::Compensate => (
                format!("{name} is undone"),
                format!("{name} cannot be undone"),
            ),
        };
        Html::default()
            .add(button("done", name, happened))
            .add(button("refused", name, did_not))
    });
    // Nothing can be undone while the outcome of a step is unknown.
    let within = Duration::ZERO;
    let others = [
        (Decision::Retry { within }, "Try again"),
        (Decision::Compensate { within }, "Undo"),
        (Decision::Close, "Close as it is"),
    ];
    let others = others
        .into_iter()
        .filter(|(decision, _)| decision.evaluate(saga, "", now).is_ok())
        .map(|(decision, name)| button(decision.as_str(), "", name.to_owned()));
    el("p").class("acts").all(steps).all(others)
}

fn steps(queries: &Queries, saga: &SagaRecord, now: Timestamp) -> Html {
    let item = |step: &StepRecord| {
        let error = step.error.as_ref().map(Refusal::to_string);
        let head = el("h3")
            .add(&step.name)
            .add(" ")
            .add(el("span").class("soft").add(step.direction.as_str()))
            .add(" ")
            .add(badge(step.state.as_str()));
        let details = facts([
            ("Attempts", cell(step.attempts)),
            ("Started", cell(time(step.began_at, now))),
            (
                "Ended",
                step.ended_at
                    .map_or_else(Html::default, |at| cell(time(at, now))),
            ),
            (
                "Next",
                if step.state == StepState::Open {
                    cell(time(step.next_at, now))
                } else {
                    Html::default()
                },
            ),
            (
                "Provider key",
                step.provider_key
                    .as_deref()
                    .map_or_else(Html::default, |key| code(Some(key))),
            ),
            ("Error", error.map_or_else(Html::default, cell)),
        ]);
        let more = |name: &'static str, bytes: &[u8]| {
            (!bytes.is_empty()).then(|| {
                el("details")
                    .add(el("summary").add(name))
                    .add(content_of(queries, name, bytes))
            })
        };
        el("li")
            .add(head)
            .add(details)
            .add(more("Request", &step.request))
            .add(more("Result", &step.made))
    };
    if saga.steps.is_empty() {
        return cell(el("p").class("nothing").add("No step was started."));
    }
    cell(el("ol").class("timeline").all(saga.steps.iter().map(item)))
}

fn signals(queries: &Queries, saga: &SagaRecord, now: Timestamp) -> Option<Html> {
    let item = |signal: &Signal| {
        el("li")
            .add(el("h3").add(&signal.name))
            .add(el("p").add(time(signal.received_at, now)))
            .add(content_of(queries, &signal.name, &signal.payload))
    };
    (!saga.signals.is_empty()).then(|| {
        Html::default().add(el("h2").add("Signals")).add(
            el("ol")
                .class("timeline")
                .all(saga.signals.iter().map(item)),
        )
    })
}

fn content_of(queries: &Queries, label: &str, bytes: &[u8]) -> Element {
    content(label, &queries.shown(Some("application/json"), bytes))
}

/// What the saga is doing, or why it does not move.
fn why(look: &SagaLook) -> String {
    match (look.saga.status.state, look.held(), look.due_at()) {
        (SagaState::Completed, ..) => "Every step is done.".to_owned(),
        (SagaState::Failed, ..) => format!("Failed: {}.", look.reason()),
        (SagaState::NeedsAttention, ..) => format!("Needs attention: {}.", look.reason()),
        (SagaState::Running, Some(until), _) => {
            format!("Held by a worker for {}.", span(until.since(look.at)))
        }
        (SagaState::Running, None, None) => "It has no next step and no timer.".to_owned(),
        (SagaState::Running, None, Some(due)) if due <= look.at => {
            let since = span(look.at.since(due));
            format!("Due for {since}, and no worker that knows its version claims it.")
        }
        (SagaState::Running, None, Some(due)) => {
            format!(
                "Waits {} for {}.",
                span(due.since(look.at)),
                look.waits_for()
            )
        }
    }
}
