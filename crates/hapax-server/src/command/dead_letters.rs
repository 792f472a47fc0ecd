//! `hapax dead-letters`: lists dead letters, and replays or discards one, or all that match a
//! filter as a job.

use std::process::ExitCode;

use hapax::admin::{AdminError, Job, JobFilter};

use super::{
    Context, Failure,
    filters::{AttemptArgs, DeliveryArgs, EventArgs, PageArgs},
};
use crate::admin::{
    ListQuery,
    command_context::{CommandContext, Consent, How},
    events,
    jobs::JobOperation,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List dead letters, newest events first
    #[command(after_help = "Example:\n  hapax dead-letters list --destination billing --since 1h")]
    List(Box<ListArgs>),
    /// Show the event of a dead letter and all attempts
    #[command(after_help = "Example:\n  hapax dead-letters show billing 4711")]
    Show {
        #[command(flatten)]
        one: DeliveryArgs,
    },
    /// Make one dead letter due again, as if it had never been tried
    #[command(after_help = "Example:\n  hapax dead-letters replay billing 4711 --yes")]
    Replay {
        #[command(flatten)]
        one: DeliveryArgs,
        /// JSON merge patch (RFC 7396) applied to the payload before it is delivered again to this
        /// destination
        #[arg(long, value_name = "JSON")]
        patch: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
    /// Discard one dead letter permanently
    #[command(
        after_help = "Example:\n  hapax dead-letters discard billing 4711 --reason 'paid by hand'"
    )]
    Discard {
        #[command(flatten)]
        one: DeliveryArgs,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Make all dead letters of --destination that match the filter due again
    #[command(
        after_help = "Example:\n  hapax dead-letters replay-all --destination billing --error timeout --dry-run"
    )]
    ReplayAll {
        #[command(flatten)]
        filter: Box<FilterArgs>,
        #[command(flatten)]
        how: How,
    },
    /// Discard all dead letters of --destination that match the filter permanently
    #[command(
        after_help = "Example:\n  hapax dead-letters discard-all --destination billing --type 'test.*' --reason 'a test'"
    )]
    DiscardAll {
        #[command(flatten)]
        filter: Box<FilterArgs>,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        how: How,
    },
    /// List the jobs, or show one
    #[command(after_help = "Example:\n  hapax dead-letters jobs 3")]
    Jobs {
        /// Job id
        id: Option<i64>,
    },
    /// Cancel a job; what it has done is not reverted
    #[command(after_help = "Example:\n  hapax dead-letters cancel 3")]
    Cancel {
        /// Job id
        id: i64,
        #[command(flatten)]
        consent: Consent,
    },
}

/// Which dead letters, and the page.
#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    attempts: AttemptArgs,
    /// Only dead letters of this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// Which dead letters of one destination.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// Destination of the dead letters
    #[arg(long, value_name = "NAME")]
    destination: String,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    attempts: AttemptArgs,
}

impl ListArgs {
    fn query(self) -> ListQuery {
        let mut query = self.events.query();
        self.attempts.add_to(&mut query);
        self.page.add_to(&mut query);
        query.destination = self.destination;
        query
    }
}

impl FilterArgs {
    /// The destination and the filter. A job has exactly one destination.
    fn spelled(self) -> (String, ListQuery) {
        let mut query = self.events.query();
        self.attempts.add_to(&mut query);
        (self.destination, query)
    }
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(args) => {
            let query = args.query();
            let filter = query.of_dead_letters()?;
            super::deliveries::list(&cx, query, &filter).await?;
        }
        Verb::Show { one } => show(&cx, &one).await?,
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
            let (of, filter) = filter.spelled();
            cx.many(JobOperation::ReplayDeadLetters, of, filter, None, how)
                .await?;
        }
        Verb::DiscardAll {
            filter,
            reason,
            how,
        } => {
            let (of, filter) = filter.spelled();
            cx.many(
                JobOperation::DiscardDeadLetters,
                of,
                filter,
                Some(reason),
                how,
            )
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

/// Shows the event of a dead letter, with its attempts at this destination alone.
async fn show(cx: &CommandContext, one: &DeliveryArgs) -> Result<(), Failure> {
    let DeliveryArgs {
        destination,
        position,
    } = one;
    let (id, mask) = (position.to_string(), Some(&cx.mask));
    let mut found = events::one(cx.store(), cx.index(), &cx.actor, &id, mask).await?;
    found.destinations.retain(|it| it.partition == *destination);
    if found.destinations.is_empty() {
        let what = format!("delivery {position} of {destination}");
        return Err(AdminError::not_found(what).into());
    }
    super::events::show(cx, &found)
}

async fn replay(
    cx: &CommandContext,
    one: &DeliveryArgs,
    patch: Option<&str>,
    consent: Consent,
) -> Result<(), Failure> {
    let DeliveryArgs {
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
    one: &DeliveryArgs,
    reason: &str,
    consent: Consent,
) -> Result<(), Failure> {
    let DeliveryArgs {
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
