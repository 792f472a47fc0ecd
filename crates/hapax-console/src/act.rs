//! Actions of operators: a confirmation page with the number of affected rows, a reason, and the
//! action.
//!
//! Each action has one confirmation page and one form that executes it. The store writes the action
//! and its reason to the audit log, in the same transaction. A form that creates a job contains an
//! idempotency key and the time of the form, so that a form that is sent twice creates one job. It
//! also contains what the operator has seen: the version of a key, of an endpoint or of an unknown
//! outcome, the epoch of a saga, or the snapshot of a count. Anything that has changed since is left
//! unchanged.

mod plan;
mod again;
mod selected;
mod test_event;
mod endpoint;
mod seek;
mod unknown;
mod run;
mod notice;

use std::str::FromStr;

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use hapax::{Timestamp, admin::REASON_BYTES_MAX};

use crate::{
    Console,
    fields::Fields,
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::{Page, sealed},
    pages::{ErrorPage, Shown},
    session::{self, LIFE},
};

use endpoint::EndpointAct;
pub(crate) use notice::notice;
use seek::SeekAct;
use unknown::UnknownAct;

/// Maximum number of selected deliveries.
const SELECTED_MAX: usize = 200;

/// The fields that are copied from the query to the form.
const FIELDS: [&str; 15] = [
    "act",
    "partition",
    "position",
    "dest",
    "q",
    "job",
    "tenant",
    "operation",
    "key",
    "saga",
    "decision",
    "step",
    "endpoint",
    "event",
    "polling",
];

/// The time of the form, in milliseconds since the Unix epoch.
const ASKED_AT: &str = "asked_at";

/// An action and its object.
enum Action {
    OneDelivery {
        verb: OneDelivery,
        partition: String,
        position: i64,
    },
    Selected {
        verb: Selected,
        /// Partition and position of each delivery.
        deliveries: Vec<(String, i64)>,
    },
    ReplayDead {
        dest: String,
        q: String,
    },
    DiscardDead {
        dest: String,
        q: String,
    },
    ReplayEvents {
        dest: String,
        q: String,
        /// Whether the form shows the exact number of events, which takes time if there are many.
        counts: bool,
    },
    Destination {
        verb: OneDestination,
        dest: String,
    },
    Test {
        dest: String,
    },
    Cancel {
        job: i64,
    },
    PurgeKey {
        tenant: Option<String>,
        operation: String,
        key: String,
        /// The version of the key that the operator has seen.
        version: Option<String>,
    },
    Decide {
        saga: String,
        decision: String,
        step: String,
        /// The epoch of the saga that the operator has seen.
        epoch: Option<i64>,
    },
    Endpoint(EndpointAct),
    Seek(SeekAct),
    Unknown(UnknownAct),
}

/// What is done with one delivery.
#[derive(Clone, Copy)]
enum OneDelivery {
    Replay,
    Edit,
    Discard,
    Retry,
}

/// What is done with deliveries that were selected in a list.
#[derive(Clone, Copy)]
enum Selected {
    Replay,
    Discard,
    Retry,
}

/// What is done with a destination.
#[derive(Clone, Copy)]
enum OneDestination {
    Pause,
    Resume,
    Remove,
}

/// The page that follows an action.
enum Done {
    /// The next page, and its message.
    Next(String, String),
    /// A page with the result.
    Shown(Box<Page>),
}

/// The confirmation page of an action.
struct Plan {
    title: String,
    /// The effect, with the number of affected rows.
    says: String,
    /// The label of the button.
    does: &'static str,
    /// The page to return to.
    back: String,
    more: Html,
    /// Whether the reason gets the focus. It is far below what has to be read first otherwise.
    is_short: bool,
}

/// Shows the confirmation page.
pub(crate) async fn ask(State(console): State<Console>, page_request: PageRequest) -> Shown {
    if !page_request.acts() {
        return Err(ErrorPage::wrong("A viewer has read access only."));
    }
    let act = Action::read(&page_request.fields)?;
    let at = console.0.clock.now();
    let plan = act.plan(&console, &page_request.caller().actor, at).await?;
    let (key, at) = (session::mint(), at.as_millis().to_string());
    let again = FIELDS
        .iter()
        .filter_map(|name| Some((*name, page_request.fields.get(name)?)));
    let again = again
        .chain([("request_key", key.as_str()), (ASKED_AT, &at)])
        .map(|(name, value)| hidden(name, value));
    let reason = el("input")
        .attr("id", "reason")
        .attr("name", "reason")
        .attr("maxlength", "1024")
        .attr("autocomplete", "off")
        .flag("required", true)
        .flag("autofocus", plan.is_short);
    let selected = page_request.fields.all("one");
    let form = el("form")
        .attr("method", "post")
        .attr("action", "/console/act")
        .class("act")
        .add(sealed(&page_request))
        .all(again)
        .all(selected.map(|one| hidden("one", one)))
        .add(el("p").class("says").add(&plan.says))
        .add(plan.more)
        .add(
            el("label")
                .attr("for", "reason")
                .add("Reason, for the audit log"),
        )
        .add(reason)
        .add(
            el("p")
                .class("acts")
                .add(
                    el("button")
                        .attr("type", "submit")
                        .class("main")
                        .add(plan.does),
                )
                .add(link(&plan.back, "Back").class("button")),
        );
    Ok(Page::new(plan.title, Html::default().add(form)))
}

/// Executes the action.
pub(crate) async fn act(
    State(console): State<Console>,
    page_request: PageRequest,
) -> Result<Response, ErrorPage> {
    let act = Action::read(&page_request.fields)?;
    let reason = page_request.fields.text("reason").trim();
    if reason.is_empty() {
        return Err(ErrorPage::wrong("A reason is required. Nothing was done."));
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(ErrorPage::wrong(
            "The reason is too long. Nothing was done.",
        ));
    }
    let actor = page_request.caller().actor.clone().because(reason);
    let at = asked_at(&page_request.fields, console.0.clock.now())?;
    let done = act.run(&console, &actor, &page_request.fields, reason, at);
    let (back, said) = match done.await? {
        Done::Next(back, said) => (back, said),
        Done::Shown(page) => return Ok(page.into_response()),
    };
    tracing::info!(
        actor = actor.name,
        said,
        "an operator changed something in the console"
    );
    let gap = if back.contains('?') { '&' } else { '?' };
    Ok(Redirect::to(&format!("{back}{gap}said={said}")).into_response())
}

/// The time of the form. Ages are relative to it, however often and late the form is sent. It is
/// neither older than a session ([`LIFE`]) nor in the future.
fn asked_at(fields: &Fields, now: Timestamp) -> Result<Timestamp, ErrorPage> {
    let Some(text) = fields.get(ASKED_AT) else {
        return Ok(now);
    };
    let at = text.parse().ok().map(Timestamp::from_millis);
    let fits = |at: &Timestamp| *at <= now && now <= at.after(LIFE);
    at.filter(fits).ok_or_else(|| {
        let why = "The time of the form is not valid, or too long ago: load the page again. \
                   Nothing was done.";
        ErrorPage::wrong(why)
    })
}

/// An optional field, parsed.
fn parsed<T: FromStr>(fields: &Fields, name: &str) -> Result<Option<T>, ErrorPage> {
    let wrong = |_| ErrorPage::wrong(format!("The field {name} is not valid. Nothing was done."));
    fields
        .get(name)
        .map(|text| text.parse().map_err(wrong))
        .transpose()
}

/// A required field with what the operator has seen or counted.
fn looked_at<T>(value: Option<T>, name: &str) -> Result<T, ErrorPage> {
    let missing = || {
        let why = format!("The field {name} is missing: reload the page. Nothing was done.");
        ErrorPage::wrong(why)
    };
    value.ok_or_else(missing)
}

fn hidden(name: &str, value: &str) -> Element {
    el("input")
        .attr("type", "hidden")
        .attr("name", name)
        .attr("value", value)
}

impl Action {
    fn read(fields: &Fields) -> Result<Self, ErrorPage> {
        let text = |name| {
            let missing = || ErrorPage::wrong(format!("The field {name} is missing."));
            fields.get(name).map(str::to_owned).ok_or_else(missing)
        };
        let whole = |name| {
            let number = text(name)?.parse::<i64>();
            number.map_err(|_| ErrorPage::wrong(format!("The field {name} is not a whole number.")))
        };
        let q = || fields.text("q").to_owned();
        let one = |verb| {
            Ok::<_, ErrorPage>(Self::OneDelivery {
                verb,
                partition: text("partition")?,
                position: whole("position")?,
            })
        };
        let destination = |verb| {
            let dest = text("dest")?;
            Ok::<_, ErrorPage>(Self::Destination { verb, dest })
        };
        Ok(match fields.text("act") {
            "replay" => one(OneDelivery::Replay)?,
            "edit" => one(OneDelivery::Edit)?,
            "discard" => one(OneDelivery::Discard)?,
            "retry" => one(OneDelivery::Retry)?,
            "replay-selected" => Self::selected(Selected::Replay, fields)?,
            "discard-selected" => Self::selected(Selected::Discard, fields)?,
            "retry-selected" => Self::selected(Selected::Retry, fields)?,
            "replay-dead" => Self::ReplayDead {
                dest: text("dest")?,
                q: q(),
            },
            "discard-dead" => Self::DiscardDead {
                dest: text("dest")?,
                q: q(),
            },
            "replay-events" => Self::ReplayEvents {
                dest: text("dest")?,
                q: text("q")?,
                counts: fields.get("count") == Some("exact"),
            },
            "pause" => destination(OneDestination::Pause)?,
            "resume" => destination(OneDestination::Resume)?,
            "remove" => destination(OneDestination::Remove)?,
            "test" => Self::Test {
                dest: text("dest")?,
            },
            "cancel" => Self::Cancel { job: whole("job")? },
            "purge-key" => Self::PurgeKey {
                tenant: fields.get("tenant").map(str::to_owned),
                operation: text("operation")?,
                key: text("key")?,
                version: fields.get("version").map(str::to_owned),
            },
            "decide" => Self::Decide {
                saga: text("saga")?,
                decision: text("decision")?,
                step: fields.text("step").to_owned(),
                epoch: parsed(fields, "epoch")?,
            },
            act if endpoint::ACTS.contains(&act) => Self::Endpoint(EndpointAct::read(fields)?),
            "seek" => Self::Seek(SeekAct::read(fields)?),
            "settle" => Self::Unknown(UnknownAct::read(fields)?),
            other => {
                return Err(ErrorPage::wrong(format!("Unknown action {other:?}.")));
            }
        })
    }
}
