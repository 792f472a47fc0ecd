//! `hapax dead-letters`: lists dead letters, and replays or discards one, or all that match a
//! filter as a job.

use std::process::ExitCode;

use hapax::admin::{Job, JobFilter};

use super::{Context, Failure};
use crate::{
    admin::{
        ListQuery,
        command_context::{CommandContext, Consent, How},
        events,
        jobs::Act,
    },
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List dead letters, newest events first
    List(Box<ListQuery>),
    /// Show the event of a dead letter and all attempts
    Show {
        /// Position of the event
        position: i64,
    },
    /// Make one dead letter due again, as if it had never been tried
    Replay {
        #[command(flatten)]
        one: One,
        /// JSON merge patch (RFC 7396) applied to the payload before it is delivered again to this
        /// destination
        #[arg(long, value_name = "JSON")]
        patch: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
    /// Discard one dead letter permanently
    Discard {
        #[command(flatten)]
        one: One,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Make all dead letters of --destination that match the filter due again
    ReplayAll {
        #[command(flatten)]
        filter: Box<ListQuery>,
        #[command(flatten)]
        how: How,
    },
    /// Discard all dead letters of --destination that match the filter permanently
    DiscardAll {
        #[command(flatten)]
        filter: Box<ListQuery>,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        how: How,
    },
    /// List the jobs, or show one
    Jobs {
        /// Job id
        id: Option<i64>,
    },
    /// Cancel a job; what it has done is not reverted
    Cancel {
        /// Job id
        id: i64,
        #[command(flatten)]
        consent: Consent,
    },
}

/// One dead letter.
#[derive(Debug, clap::Args)]
struct One {
    /// Destination as listed; if it has several partitions, the partition, such as orders/3
    destination: String,
    /// Position as listed
    position: i64,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => {
            let filter = ask.of_dead_letters()?;
            super::deliveries::list(&cx, *ask, &filter).await?;
        }
        Verb::Show { position } => {
            let id = position.to_string();
            let mask = Some(&cx.mask);
            let found = events::one(cx.store(), cx.index(), &cx.actor, &id, mask).await?;
            super::events::show(&cx, &found)?;
        }
        Verb::Replay {
            one,
            patch,
            consent,
        } => replay(&cx, &one, patch.as_deref(), consent).await?,
        Verb::Discard {
            one,
            reason,
            consent,
        } => discard(&cx, &one, &reason, consent).await?,
        Verb::ReplayAll { filter, how } => {
            let of = destination(&filter)?;
            cx.many(Act::ReplayDeadLetters, of, *filter, None, how)
                .await?;
        }
        Verb::DiscardAll {
            filter,
            reason,
            how,
        } => {
            let of = destination(&filter)?;
            cx.many(Act::DiscardDeadLetters, of, *filter, Some(reason), how)
                .await?;
        }
        Verb::Jobs { id: Some(id) } => {
            cx.job(&cx.store().job(&cx.actor, id).await?)?;
        }
        Verb::Jobs { id: None } => list_jobs(&cx).await?,
        Verb::Cancel { id, consent } => {
            cx.confirm(consent, &format!("Cancel job {id}?"))?;
            cx.store().cancel_job(&cx.actor, id).await?;
            cx.job(&cx.store().job(&cx.actor, id).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The destination of a filter. A job has exactly one.
pub(super) fn destination(filter: &ListQuery) -> Result<String, Failure> {
    let missing = || Failure::new(USAGE, "--destination is missing: a job needs one");
    filter.destination.clone().ok_or_else(missing)
}

async fn replay(
    cx: &CommandContext,
    one: &One,
    patch: Option<&str>,
    consent: Consent,
) -> Result<(), Failure> {
    let One {
        destination,
        position,
    } = one;
    let edited = if patch.is_some() { ", edited" } else { "" };
    cx.confirm(
        consent,
        &format!("Replay dead letter {position} of {destination}{edited}?"),
    )?;
    let (store, actor, position) = (cx.store(), &cx.actor, *position);
    if let Some(patch) = patch {
        let edited = store.edit_dead_letter(actor, destination, position, patch);
        edited.await?;
    } else {
        let replayed = store.replay_dead_letter(actor, destination, position);
        replayed.await?;
    }
    let said = serde_json::json!({"destination": destination, "position": position});
    cx.say(&said, || {
        format!("dead letter {position} of {destination} is due again{edited}")
    })
}

async fn discard(
    cx: &CommandContext,
    one: &One,
    reason: &str,
    consent: Consent,
) -> Result<(), Failure> {
    let One {
        destination,
        position,
    } = one;
    cx.confirm(
        consent,
        &format!("Discard dead letter {position} of {destination} permanently?"),
    )?;
    let store = cx.store();
    let discarded = store.discard_dead_letter(&cx.actor, destination, *position, reason);
    discarded.await?;
    let said = serde_json::json!({"destination": destination, "position": position});
    cx.say(&said, || {
        format!("dead letter {position} of {destination} is discarded")
    })
}

async fn list_jobs(cx: &CommandContext) -> Result<(), Failure> {
    let filter = JobFilter::default();
    let jobs = cx.store().jobs(&cx.actor, &filter, None, 50).await?;
    let row = |it: Job| {
        let total = it.total.map(|total| total.to_string());
        let total = total.unwrap_or_else(|| "?".to_owned());
        [
            it.id.to_string(),
            it.kind.as_str().to_owned(),
            it.destination,
            it.state,
            format!("{} of {total}", it.done),
            it.actor,
            it.error.unwrap_or_default(),
        ]
    };
    let header = [
        "JOB",
        "KIND",
        "DESTINATION",
        "STATE",
        "DONE",
        "ACTOR",
        "ERROR",
    ];
    cx.page(jobs, header, row)
}
