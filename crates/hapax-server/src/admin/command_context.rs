//! Context of the operator commands: the store, the actor, the confirmation prompt, and errors.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, Write as _},
    os::unix::fs::MetadataExt as _,
    sync::Arc,
    time::Duration,
};

use hapax::{
    admin::{Actor, Admin, AdminError, DestinationIndex, Job, JobStep, Page},
    mask::Mask,
};
use hapax_sinks::endpoints::TenantEndpoints;
use serde::Serialize;
use tokio::time::sleep;

use super::{
    Declare, ListQuery, Many,
    jobs::{JobOperation, begin, count},
    keys_of,
};
use crate::{
    command::{Context, Failure},
    config::Config,
    endpoints::operations_of,
    output::{self, FAILED, NOT_FOUND, Output, REFUSED, USAGE},
};

/// Poll interval while waiting for a job.
const LOOK: Duration = Duration::from_millis(100);

/// The store, the actor, and the output of a command.
pub(crate) struct CommandContext {
    pub(crate) actor: Actor,
    pub(crate) declare: Declare,
    pub(crate) endpoints: TenantEndpoints,
    /// Maximum number of deliveries that wait for an endpoint.
    pub(crate) waiting_max: u32,
    pub(crate) mask: Mask,
    /// The kinds of the sinks of the configuration, by destination.
    pub(crate) sinks: BTreeMap<String, String>,
    pub(crate) output: Output,
}

/// Confirmation.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Options of a bulk operation.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// Count the matches and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Maximum number per second
    #[arg(long, value_name = "COUNT")]
    per_second: Option<u32>,
    /// Idempotency key of this request: if it is given again, no second job is created
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Run the job in this process and wait until it ends; otherwise a relay runs it
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    consent: Consent,
}

impl CommandContext {
    /// Opens the configured store. The actor is the user who runs this process.
    pub(crate) async fn open(context: &Context) -> Result<Self, Failure> {
        let keys = keys_of(&context.config)?;
        let admin = context.admin().await?;
        let endpoints = operations_of(Arc::clone(&admin), &context.config, keys.clone())?;
        Ok(Self {
            endpoints,
            waiting_max: context.config.endpoints.waiting,
            declare: Declare::new(admin, &context.config, keys),
            actor: Actor::new(user()),
            mask: Mask::with(&context.config.admin.mask),
            sinks: sinks(&context.config),
            output: context.output,
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn Admin {
        self.index().store()
    }

    /// The index of destinations.
    pub(crate) fn index(&self) -> &DestinationIndex {
        self.declare.index()
    }

    /// Asks for confirmation. Without a terminal the command is refused.
    pub(crate) fn confirm(&self, consent: Consent, question: &str) -> Result<(), Failure> {
        // Likewise with JSON output, which is read by a program.
        if consent.yes {
            return Ok(());
        }
        if self.output.json || !output::is_watched() {
            let error_chain = format!("{question} There is no terminal to confirm it: give --yes");
            return Err(Failure::new(REFUSED, error_chain));
        }
        write!(io::stderr(), "{question} [y/N] ")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(Failure::new(REFUSED, "nothing was done"))
    }

    /// Runs a bulk operation: counts the matches, asks for confirmation, creates the job, and waits
    /// for it if asked to.
    pub(crate) async fn many(
        &self,
        act: JobOperation,
        destination: String,
        filter: ListQuery,
        reason: Option<String>,
        how: How,
    ) -> Result<(), Failure> {
        let mut many = Many {
            destination,
            filter,
            per_second: how.per_second,
            reason,
            dry_run: how.dry_run,
            seen: None,
        };
        let counted = count(self.index(), &self.actor, &many, act).await?;
        let count = counted.count;
        let plural = if count == 1 { "" } else { "s" };
        if how.dry_run {
            let what = match act {
                JobOperation::ReplayEvents => "event",
                _ => "dead letter",
            };
            let verb = if count == 1 { "es" } else { "" };
            return self.say(&counted, || format!("{count} {what}{plural} match{verb}"));
        }
        let name = &many.destination;
        let question = match act {
            JobOperation::ReplayDeadLetters => {
                format!("Replay {count} dead letter{plural} of {name}?")
            }
            JobOperation::DiscardDeadLetters => {
                format!("Discard {count} dead letter{plural} of {name}?")
            }
            JobOperation::ReplayEvents => format!("Offer {count} event{plural} again to {name}?"),
        };
        self.confirm(how.consent, &question)?;
        // The job is limited to what existed at the count, which is what was confirmed.
        many.seen = Some(counted.seen);
        let key = how.idempotency_key;
        let begun = begin(self.index(), &self.actor, &many, act, key).await?;
        let job = if how.wait {
            self.wait(begun.id).await?
        } else {
            begun
        };
        let failed = job.state == "failed";
        self.job(&job)?;
        if failed {
            return Err(Failure::new(FAILED, "the job failed"));
        }
        Ok(())
    }

    /// Prints the state of a job.
    pub(crate) fn job(&self, job: &Job) -> Result<(), Failure> {
        self.say(job, || {
            let total = job
                .total
                .map(|total| format!(" of {total}"))
                .unwrap_or_default();
            let skipped = job.skipped();
            let skipped = skipped.map(|(count, why)| format!("; {count} unchanged: {why}"));
            let skipped = skipped.unwrap_or_default();
            format!(
                "job {} is {}: {}{total}{skipped}",
                job.id, job.state, job.done
            )
        })
    }

    /// Prints a value as JSON or as a line.
    pub(crate) fn say(
        &self,
        value: &impl Serialize,
        line: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.output.json {
            self.output.json(value)?;
        } else {
            self.output.line(line())?;
        }
        Ok(())
    }

    /// Prints a page as JSON, or its items as a table.
    pub(crate) fn page<T: Serialize, const N: usize>(
        &self,
        page: Page<T>,
        header: [&str; N],
        row: impl FnMut(T) -> [String; N],
    ) -> Result<(), Failure> {
        if self.output.json {
            return Ok(self.output.json(&page)?);
        }
        let rows: Vec<_> = page.items.into_iter().map(row).collect();
        Ok(self.output.table(header, &rows)?)
    }

    async fn wait(&self, id: i64) -> Result<Job, Failure> {
        loop {
            let ran = self.store().run_job().await?;
            let job = self.store().job(&self.actor, id).await?;
            if job.ended_at.is_some() {
                return Ok(job);
            }
            output::note(format_args!("{} done", job.done));
            if ran == JobStep::Nothing {
                sleep(LOOK).await;
            }
        }
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let code = match &error {
            AdminError::NotFound { .. } => NOT_FOUND,
            AdminError::Conflict { .. } => REFUSED,
            AdminError::Invalid { .. } => USAGE,
            AdminError::Store(error) => return Self::new(FAILED, error.error_chain()),
            _ => FAILED,
        };
        Self::new(code, error.to_string())
    }
}

/// Reads page after page until there are `limit` items or no more.
pub(crate) async fn read_pages<T>(
    before: Option<String>,
    limit: usize,
    read: impl AsyncFn(Option<&str>, usize) -> Result<Page<T>, AdminError>,
) -> Result<Page<T>, AdminError> {
    let mut page = read(before.as_deref(), limit).await?;
    while page.items.len() < limit {
        let Some(next) = page.next.take() else { break };
        let more = read(Some(&next), limit - page.items.len()).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    Ok(page)
}

/// The kinds of the sinks of the configuration, by destination.
fn sinks(config: &Config) -> BTreeMap<String, String> {
    let destinations = config.destinations.iter();
    let kinds = destinations.map(|(name, spec)| (name.clone(), spec.sink.kind().to_owned()));
    kinds.collect()
}

/// The name of the user who owns this process, for the audit log.
fn user() -> String {
    let id = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut words = line.split(':');
        let name = words.next()?;
        (words.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {id}"))
}
