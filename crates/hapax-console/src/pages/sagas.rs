//! `/console/sagas`: lists sagas, and shows one with its steps and the possible decisions.

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    key::Tenant,
    saga::{
        Direction, Filter, Refusal, SagaRecord, Signal, State as SagaState, StepRecord, StepState,
    },
};

use super::{
    ROWS, Shown,
    events::list_of,
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{Table, badge, cell, code, content, facts, open, pager, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    queries::{Queries, sagas::Look},
};

static KNOWN: Known = Known {
    qualifiers: &[Qualifier::State, Qualifier::Saga],
    words: None,
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
        let page = console
            .queries()
            .sagas(&page_request.caller().actor, &filter, ROWS)
            .await?;
        let mut table = Table::new(
            "Sagas",
            &["Saga", "Kind", "State", "Reason", "Begun", "Tenant"],
        );
        for look in &page.items {
            let saga = &look.saga;
            let id = el("code").class("break").add(&saga.id);
            table.row([
                cell(open(&path_of("/console/sagas", &saga.id), id)),
                cell(format!("{} v{}", saga.kind.name, saga.kind.version)),
                cell(badge(saga.status.state.as_str())),
                cell(why(look)),
                cell(time(saga.created_at, look.at)),
                code(saga.tenant.as_ref().map(Tenant::as_str)),
            ]);
        }
        body = list_of(table, page.next.is_some(), "saga");
        let before = page_request.fields.text("before");
        body = body.add(pager(
            "/console/sagas",
            &query.text,
            before,
            page.next.as_deref(),
        ));
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
    let look = queries.saga(&page_request.caller().actor, &id).await?;
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
        ("Begun", cell(time(saga.created_at, now))),
        ("Deadline", cell(time(saga.status.deadline_at, now))),
        (
            "Ended",
            saga.ended_at
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        ("Epoch", cell(saga.epoch)),
    ]);
    let decisions = (page_request.acts() && saga.status.state == SagaState::NeedsAttention)
        .then(|| decisions(saga));
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
fn decisions(saga: &SagaRecord) -> Element {
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
    el("p")
        .class("acts")
        .all(steps)
        .add(button("retry", "", "Try again".to_owned()))
        .add(button("undo", "", "Undo".to_owned()))
        .add(button("close", "", "Close as it is".to_owned()))
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
            ("Began", cell(time(step.began_at, now))),
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

/// Describes what the saga is doing, or why it does not continue.
fn why(look: &Look) -> String {
    let Look {
        saga,
        held_until,
        at,
    } = look;
    let held_until = held_until.filter(|until| until > at);
    let reason = saga.status.reason.as_ref();
    let reason = reason.map_or_else(|| "no reason was recorded".to_owned(), Refusal::to_string);
    match (saga.status.state, held_until) {
        (SagaState::Completed, _) => "Every step is done.".to_owned(),
        (SagaState::Failed, _) => format!("Failed: {reason}."),
        (SagaState::NeedsAttention, _) => format!("Needs attention: {reason}."),
        (SagaState::Running, Some(until)) => {
            format!("Owned by a worker for {}.", span(until.since(*at)))
        }
        (SagaState::Running, None) => waits(saga, look.held_until, *at),
    }
}

/// Describes what a saga without an owner waits for.
fn waits(saga: &SagaRecord, lease_ended: Option<Timestamp>, at: Timestamp) -> String {
    let Some(wake_at) = saga.wake_at else {
        return "Is never due.".to_owned();
    };
    let due = lease_ended.map_or(wake_at, |lease_ended| lease_ended.max(wake_at));
    if due <= at {
        let since = span(at.since(due));
        return format!("Due for {since}, and no worker that knows its version takes it.");
    }
    let what = saga.waiting_for.as_deref().unwrap_or("its next step");
    format!("Waits {} for {what}.", span(due.since(at)))
}
