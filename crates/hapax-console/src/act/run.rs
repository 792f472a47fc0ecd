//! Execution of confirmed actions.

use hapax::{
    Timestamp,
    admin::{Actor, Admin, EventFilter, JobOptions, SagaLook},
    retry::parse_duration,
    saga::{Decision, Direction},
};

use super::{Action, Done, OneDelivery, OneDestination, looked_at, test_event};
use crate::{
    Console,
    fields::{Fields, path_of},
    filter::{Qualifier, Wrong},
    pages::{
        ErrorPage,
        deliveries::{DEAD, filter_of},
        events::KNOWN,
        query::ListQuery,
    },
};

/// The default time limit of a saga that continues.
pub(super) const WITHIN: &str = "15m";

/// The page of the jobs.
const JOBS: &str = "/console/advanced";

impl Action {
    /// Executes an action. Ages are relative to the time of the form.
    pub(super) async fn run(
        &self,
        console: &Console,
        actor: &Actor,
        fields: &Fields,
        reason: &str,
        at: Timestamp,
    ) -> Result<Done, ErrorPage> {
        let (store, index) = (console.store(), console.index());
        let how = || {
            let seen = fields.get("seen").map(str::to_owned);
            Ok::<_, ErrorPage>(JobOptions {
                per_second: None,
                request_key: fields.get("request_key").map(str::to_owned),
                seen: Some(looked_at(seen, "seen")?),
            })
        };
        let (page, said) = match self {
            Self::Selected { verb, deliveries } => {
                return verb.run(store, actor, deliveries, reason).await;
            }
            Self::Test { dest } => return test_event::send(console, actor, dest).await,
            Self::OneDelivery {
                verb,
                partition,
                position,
            } => {
                verb.run(store, actor, (partition, *position), fields, reason)
                    .await?
            }
            Self::ReplayDead { dest, q } | Self::DiscardDead { dest, q } => {
                let (filter, options) = (dead(dest, q, at)?, how()?);
                let discard = matches!(self, Self::DiscardDead { .. }).then_some(reason);
                let begun = store.start_dead_letter_job(actor, dest, &filter, discard, &options);
                begun.await?;
                (JOBS.to_owned(), "job")
            }
            Self::ReplayEvents { dest, q, .. } => {
                let (filter, options) = (events(q, at)?, how()?);
                let (filter, partitions) = index.offered(actor, dest, filter).await?;
                let begun = store.start_event_job(actor, dest, &filter, partitions, &options);
                begun.await?;
                (JOBS.to_owned(), "job")
            }
            Self::Destination { verb, dest } => verb.run(console, actor, dest).await?,
            Self::Cancel { job } => {
                store.cancel_job(actor, *job).await?;
                (JOBS.to_owned(), "cancelled")
            }
            Self::PurgeKey {
                tenant,
                operation,
                key,
                version,
            } => {
                let version = looked_at(version.as_deref(), "version")?;
                let tenant = tenant.as_deref();
                let purged = store.purge_key(actor, tenant, operation, key, version, reason);
                purged.await?;
                ("/console/keys".to_owned(), "purged")
            }
            Self::Decide {
                saga,
                decision,
                step,
                epoch,
            } => {
                let of_step = (saga.as_str(), decision.as_str(), step.as_str(), *epoch);
                decide(store, actor, of_step, fields, reason).await?
            }
            Self::Endpoint(act) => return act.run(console, actor, reason, at).await,
            Self::Seek(act) => act.run(store, actor, fields).await?,
            Self::Unknown(act) => act.run(store, actor, fields, reason).await?,
        };
        Ok(Done::Next(page, said.to_owned()))
    }
}

/// Decides about a step of a saga, given as saga, decision, step and epoch.
async fn decide(
    store: &dyn Admin,
    actor: &Actor,
    (saga, decision, step, epoch): (&str, &str, &str, Option<i64>),
    fields: &Fields,
    reason: &str,
) -> Result<(String, &'static str), ErrorPage> {
    let decision = decided(decision, step, fields)?;
    let epoch = looked_at(epoch, "epoch")?;
    is_of_this_direction(&store.look_at_saga(actor, saga).await?, step, fields)?;
    store.decide(actor, saga, epoch, &decision, reason).await?;
    Ok((path_of("/console/sagas", saga), "decided"))
}

impl OneDelivery {
    /// Executes an action on one delivery, given as partition and position.
    async fn run(
        self,
        store: &dyn Admin,
        actor: &Actor,
        (partition, position): (&str, i64),
        fields: &Fields,
        reason: &str,
    ) -> Result<(String, &'static str), ErrorPage> {
        let event = path_of("/console/events", &position.to_string());
        Ok(match self {
            Self::Replay => {
                let replayed = store.replay_dead_letter(actor, partition, position);
                replayed.await?;
                (event, "replayed")
            }
            Self::Edit => {
                let patch = fields.text("patch");
                let edited = store.edit_dead_letter(actor, partition, position, patch);
                edited.await?;
                (event, "edited")
            }
            Self::Discard => {
                let discarded = store.discard_dead_letter(actor, partition, position, reason);
                discarded.await?;
                (event, "discarded")
            }
            Self::Retry => {
                let retried = store.retry_delivery_now(actor, partition, position);
                retried.await?;
                (event, "retried")
            }
        })
    }
}

impl OneDestination {
    /// Executes an action on a destination.
    async fn run(
        self,
        console: &Console,
        actor: &Actor,
        dest: &str,
    ) -> Result<(String, &'static str), ErrorPage> {
        let page = path_of("/console/destinations", dest);
        Ok(match self {
            Self::Pause => {
                console.store().pause_destination(actor, dest).await?;
                (page, "paused")
            }
            Self::Resume => {
                console.index().resume(actor, dest).await?;
                (page, "resumed")
            }
            Self::Remove => {
                console.store().remove_destination(actor, dest).await?;
                (JOBS.to_owned(), "removed")
            }
        })
    }
}

/// The filter of dead letters. Its destination is given separately and must be the same.
pub(super) fn dead(dest: &str, q: &str, at: Timestamp) -> Result<EventFilter, ErrorPage> {
    let mut query = ListQuery::read(q, &DEAD);
    let filter = filter_of(&mut query, at);
    let other = query.filter.one(Qualifier::Dest).filter(|it| *it != dest);
    if let Some(other) = other.map(str::to_owned) {
        query.refuse(Wrong(format!("dest: is {other:?}, and not {dest:?}")));
    }
    right(query, filter)
}

/// The filter of events.
pub(super) fn events(q: &str, at: Timestamp) -> Result<EventFilter, ErrorPage> {
    let mut query = ListQuery::read(q, &KNOWN);
    let filter = query.of_events(at);
    right(query, filter)
}

fn right(query: ListQuery, filter: EventFilter) -> Result<EventFilter, ErrorPage> {
    match query.wrong {
        Some(wrong) => Err(ErrorPage::wrong(format!("{}. Nothing was done.", wrong.0))),
        None => Ok(filter),
    }
}

/// Refuses a decision about a step if the form was about its compensation, or the reverse. Both
/// have the same name.
fn is_of_this_direction(look: &SagaLook, step: &str, fields: &Fields) -> Result<(), ErrorPage> {
    let Some(row) = look.saga.asked_about(step) else {
        // The store refuses it with a reason and writes that to the audit log.
        return Ok(());
    };
    if fields.text("direction") == row.direction.as_str() {
        return Ok(());
    }
    let now = match row.direction {
        Direction::Forward => "whether it happened",
        Direction::Compensate => "whether it is undone",
    };
    Err(ErrorPage::late(&format!(
        "the question about step {step} is now {now}"
    )))
}

/// The decision of a form, parsed.
pub(super) fn decided(decision: &str, step: &str, fields: &Fields) -> Result<Decision, ErrorPage> {
    let step = || step.to_owned();
    let within = || {
        let text = fields.get("within").unwrap_or(WITHIN);
        parse_duration(text)
            .map_err(|error| ErrorPage::wrong(format!("The time {text:?} is not valid: {error}.")))
    };
    Ok(match decision {
        "done" => {
            let made = fields.text("made");
            let is_json = serde_json::from_str::<serde_json::Value>(made).is_ok();
            if !made.is_empty() && !is_json {
                return Err(ErrorPage::wrong(
                    "The result is not JSON. Nothing was done.",
                ));
            }
            Decision::Done {
                step: step(),
                made: made.to_owned().into_bytes().into(),
            }
        }
        "refused" => Decision::Refused { step: step() },
        "retry" => Decision::Retry { within: within()? },
        "undo" => Decision::Compensate { within: within()? },
        "close" => Decision::Close,
        other => return Err(ErrorPage::wrong(format!("Unknown decision {other:?}."))),
    })
}
