//! Confirmation pages: the effect of an action and the number of affected rows.

use hapax::{
    Timestamp,
    admin::{Actor, KeyRecord, SagaLook},
    saga::{Decision, Direction},
};

use super::{Action, OneDelivery, OneDestination, Plan, again, hidden, run, test_event};
use crate::{
    Console,
    fields::{Fields, path_of, url},
    format::{content, counted, number},
    html::{Element, Html, el},
    pages::ErrorPage,
};

impl Action {
    /// Builds the confirmation page. Ages are relative to the time of the form.
    pub(super) async fn plan(
        &self,
        console: &Console,
        actor: &Actor,
        at: Timestamp,
    ) -> Result<Plan, ErrorPage> {
        match self {
            Self::OneDelivery {
                verb: OneDelivery::Edit,
                partition,
                position,
            } => edit(console, actor, partition, *position).await,
            Self::OneDelivery {
                verb,
                partition,
                position,
            } => one_delivery(console, actor, *verb, partition, *position).await,
            Self::Selected { verb, deliveries } => Ok(verb.plan(deliveries)),
            Self::ReplayDead { dest, q } | Self::DiscardDead { dest, q } => {
                self.of_dead(console, actor, dest, q, at).await
            }
            Self::ReplayEvents { dest, q, counts } => {
                again::plan(console, actor, (dest, q), *counts, at).await
            }
            Self::Destination { verb, dest } => destination(console, actor, *verb, dest).await,
            Self::Test { dest } => test_event::plan(console, actor, dest).await,
            Self::Cancel { job } => cancel(console, actor, *job).await,
            Self::PurgeKey {
                tenant,
                operation,
                key,
                version,
            } => {
                let found = console
                    .store()
                    .key(actor, tenant.as_deref(), operation, key);
                purge(&found.await?, version.as_deref())
            }
            Self::Decide {
                saga,
                decision,
                step,
                epoch,
            } => {
                let look = console.store().look_at_saga(actor, saga).await?;
                decide(&look, decision, step, *epoch)
            }
            Self::Endpoint(act) => act.plan(console, actor, at).await,
            Self::Seek(act) => act.plan(console.store(), actor).await,
            Self::Unknown(act) => act.plan(console.store(), actor).await,
        }
    }

    async fn of_dead(
        &self,
        console: &Console,
        actor: &Actor,
        dest: &str,
        q: &str,
        at: Timestamp,
    ) -> Result<Plan, ErrorPage> {
        let filter = run::dead(dest, q, at)?;
        // The snapshot is taken before the count, because the job is limited to the snapshot.
        let seen = console.store().seen().await?;
        let found = console
            .store()
            .count_dead_letters(actor, dest, &filter, &seen);
        let count = found.await?;
        let letters = counted(count, "dead letter", "dead letters");
        let back = url("/console/dead-letters", &[("q", q)]);
        let rest = if q.is_empty() {
            String::new()
        } else {
            format!(" The filter is {q}.")
        };
        let plan = if matches!(self, Self::ReplayDead { .. }) {
            let says =
                format!("{letters} of {dest} will be due again at once, with no attempts counted.");
            Plan::new("Replay dead letters", says + &rest, "Replay them", back)
        } else {
            let says = format!("{letters} of {dest} will be discarded permanently.");
            Plan::new("Discard dead letters", says + &rest, "Discard them", back)
        };
        Ok(plan.looked_at("seen", &seen))
    }
}

/// The plan for one delivery, whose event must exist and be visible to the actor.
async fn one_delivery(
    console: &Console,
    actor: &Actor,
    verb: OneDelivery,
    partition: &str,
    position: i64,
) -> Result<Plan, ErrorPage> {
    let id = position.to_string();
    let found = console.queries().event(actor, &id).await?;
    let event = format!("{}, event {position} at {partition},", found.event.kind);
    let back = path_of("/console/events", &id);
    Ok(match verb {
        OneDelivery::Discard => {
            let says = format!(
                "The dead letter {event} will be discarded permanently. Later events that it \
                 blocks are delivered."
            );
            Plan::new("Discard a dead letter", says, "Discard it", back)
        }
        OneDelivery::Replay | OneDelivery::Edit => {
            let says = format!(
                "The dead letter {event} will be due again at once, with no attempts counted."
            );
            Plan::new("Replay a dead letter", says, "Replay it", back)
        }
        OneDelivery::Retry => {
            let says = format!(
                "The delivery {event} will be due now instead of at its next attempt. Its \
                 attempts still count: if this one is the last and fails, it becomes a dead letter."
            );
            Plan::new("Retry a delivery now", says, "Retry it", back)
        }
    })
}

async fn destination(
    console: &Console,
    actor: &Actor,
    verb: OneDestination,
    dest: &str,
) -> Result<Plan, ErrorPage> {
    console.index().get(actor, dest).await?;
    let look = console.0.samples.look(console, actor).await?;
    let known = look.overview.destinations.iter().find(|it| it.name == dest);
    let waits = known.map_or(0, |it| it.backlog.number);
    let dead = known.map_or(0, |it| it.dead.number);
    let parked = known.map_or(0, |it| it.parked.number);
    let back = path_of("/console/destinations", dest);
    let waits = counted(waits, "event waits", "events wait");
    let dead = counted(dead, "dead letter", "dead letters");
    let parked = counted(parked, "parked delivery", "parked deliveries");
    Ok(match verb {
        OneDestination::Pause => {
            let says =
                format!("Nothing is delivered to {dest} until it is resumed; {waits} for it now.");
            Plan::new("Pause a destination", says, "Pause it", back)
        }
        OneDestination::Resume => {
            let says = format!("Deliveries to {dest} continue; {waits} for it now.");
            Plan::new("Resume a destination", says, "Resume it", back)
        }
        OneDestination::Remove => {
            let says = format!(
                "{dest} will be removed: its {parked}, {dead} and checkpoints are deleted."
            );
            Plan::new("Remove a destination", says, "Remove it", back)
        }
    })
}

async fn cancel(console: &Console, actor: &Actor, job: i64) -> Result<Plan, ErrorPage> {
    let found = console.store().job(actor, job).await?;
    let says = format!(
        "Job {job} ends. {} of {} are done, and are not reverted.",
        number(found.done),
        found
            .total
            .map_or_else(|| "an unknown number".to_owned(), number)
    );
    let back = "/console/advanced".to_owned();
    Ok(Plan::new("Cancel a job", says, "Cancel it", back))
}

impl Plan {
    pub(super) fn new(title: &str, says: String, does: &'static str, back: String) -> Self {
        Self {
            title: title.to_owned(),
            says,
            does,
            back,
            more: Html::default(),
            is_short: true,
        }
    }

    /// Adds a field with what the operator has seen.
    pub(super) fn looked_at(mut self, name: &str, value: &impl ToString) -> Self {
        self.more = self.more.add(hidden(name, &value.to_string()));
        self
    }
}

/// The effect of a purge, if the key still has the version that the operator has seen.
fn purge(key: &KeyRecord, version: Option<&str>) -> Result<Plan, ErrorPage> {
    let (operation, name) = (&key.summary.operation, &key.summary.key);
    if version.is_some_and(|version| version != key.version) {
        let why = "the key was used again since its page was opened: load the page again";
        return Err(ErrorPage::late(&why));
    }
    let says = format!(
        "The key {name} of {operation} is deleted with its stored response. Within a second every \
         node knows it. The next request with the key then runs its handler again, and has its \
         effects again."
    );
    let back = "/console/keys".to_owned();
    let plan = Plan::new("Purge a key", says, "Purge it", back);
    Ok(plan.looked_at("version", &key.version))
}

/// The payload of a dead letter, masked, and a field for the patch. To edit one member, the
/// operator need not see the others.
async fn edit(
    console: &Console,
    actor: &Actor,
    partition: &str,
    position: i64,
) -> Result<Plan, ErrorPage> {
    let queries = console.queries();
    let found = queries.event(actor, &position.to_string()).await?;
    let traces = queries.traces(actor, position).await?;
    let edited = traces.into_iter().find(|it| it.partition == partition);
    let payload = edited.and_then(|it| it.edited);
    let payload = payload.as_ref().unwrap_or(&found.event.payload);
    let shown = queries.shown(Some(payload.content_type()), payload.bytes());
    let says = format!(
        "The dead letter of event {position} at {partition} will be due again at once, with the \
         payload that you edit here. The event itself and the payload for other destinations are not \
         changed."
    );
    let back = path_of("/console/events", &position.to_string());
    let mut plan = Plan::new(
        "Edit and replay a dead letter",
        says,
        "Edit and replay it",
        back,
    );
    let patch = el("textarea")
        .attr("id", "patch")
        .attr("name", "patch")
        .attr("rows", "8")
        .attr("spellcheck", "false")
        .attr("autocomplete", "off")
        .flag("required", true)
        .add("{}");
    plan.more = Html::default()
        .add(el("h2").add("Current payload"))
        .add(content("Payload", &shown))
        .add(el("label").attr("for", "patch").add(
            "JSON merge patch: its members replace those of the payload, and null removes a member",
        ))
        .add(patch);
    plan.is_short = false;
    Ok(plan)
}

/// The effect of a decision. The form contains the direction of the step, because the step may have
/// ended by the time the form is sent.
fn decide(look: &SagaLook, word: &str, step: &str, epoch: Option<i64>) -> Result<Plan, ErrorPage> {
    let saga = &look.saga;
    if epoch.is_some_and(|epoch| epoch != saga.epoch) {
        let why = "the saga has changed since its page was opened: load the page again";
        return Err(ErrorPage::late(&why));
    }
    let decision = run::decided(word, step, &Fields::default())?;
    let judged = decision.evaluate(saga, "", look.at);
    judged.map_err(|error| ErrorPage::late(&error))?;
    let direction = saga
        .asked_about(step)
        .map_or(Direction::Forward, |row| row.direction);
    let does = match (&decision, direction) {
        (Decision::Done { .. }, Direction::Forward) => "It happened",
        (Decision::Done { .. }, Direction::Compensate) => "It is undone",
        (Decision::Refused { .. }, Direction::Forward) => "It did not happen",
        (Decision::Refused { .. }, Direction::Compensate) => "It cannot be undone",
        (Decision::Retry { .. }, _) => "Try again",
        (Decision::Compensate { .. }, _) => "Undo it",
        (Decision::Close, _) => "Close it",
    };
    let back = path_of("/console/sagas", &saga.id);
    let mut plan = Plan::new("Decide about a saga", decision.says(saga), does, back);
    let more = match (&decision, direction) {
        (Decision::Done { .. }, Direction::Forward) => {
            field("made", "Result, as JSON (empty: none)", "")
        }
        (Decision::Retry { .. } | Decision::Compensate { .. }, _) => {
            field("within", "Time limit", run::WITHIN)
        }
        _ => Html::default(),
    };
    plan.more = Html::default()
        .add(hidden("direction", direction.as_str()))
        .add(more);
    Ok(plan.looked_at("epoch", &saga.epoch))
}

pub(super) fn field(name: &str, label: &str, value: &str) -> Html {
    let input: Element = el("input")
        .attr("id", name)
        .attr("name", name)
        .attr("value", value)
        .attr("autocomplete", "off");
    Html::default()
        .add(el("label").attr("for", name).add(label))
        .add(input)
}
