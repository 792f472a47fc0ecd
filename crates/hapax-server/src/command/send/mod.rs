//! `hapax send`: sends one request under one key, with retries, until the response is final.
//!
//! The body of the response is written to standard output, the attempts to standard error. With a
//! journal, a run that was killed continues under its key; nothing is sent before the key is on
//! disk. `category` contains the exit codes.

mod category;
mod report;
mod request;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use hapax::{
    limits::{BACKOFF_BASE, BACKOFF_CAP, RESUME, SEND, SEND_ATTEMPTS},
    retry::{Backoff, Budget, parse_duration},
};
use hapax_client::{Attempt, Client, FileJournal, Policy, SendError, Settings, Watch};

use report::Kept;

use super::{Context, Failure};
use crate::{
    environment,
    output::{REFUSED, USAGE, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// URL, http or https
    url: String,
    /// HTTP method [default: GET, or POST with --data]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// Header; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Body; @FILE reads a file and @- standard input. JSON, unless a Content-Type header is given
    #[arg(short = 'd', long, value_name = "DATA")]
    data: Option<String>,
    /// Idempotency key [default: a new UUID for POST and PATCH]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Keep the key in this file, so that the same command continues under it after a crash
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Maximum age of a key in the journal; must not be longer than the service keeps keys
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration, requires = "journal")]
    resume_within: Duration,
    /// Discard an unfinished run in the journal and send under a new key: the operation is executed
    /// once more
    #[arg(long, requires = "journal")]
    anew: bool,
    /// Maximum number of attempts
    #[arg(long, value_name = "N", default_value_t = SEND_ATTEMPTS, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Maximum of the first wait, which doubles with each retry; a wait is random between zero and
    /// its maximum
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    backoff_base: Duration,
    /// Maximum of all waits, unless the server asks for a longer one
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    backoff_cap: Duration,
    /// Budget of retries: unbounded, default (five, and one more every two seconds) or strict (one
    /// per second)
    #[arg(long, value_name = "WORD", default_value = "unbounded", value_parser = budget)]
    budget: Budget,
    /// Time limit for all attempts and waits
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Time limit of one attempt [default: the remaining time]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    attempt_timeout: Option<Duration>,
    /// PEM file with additional trusted authorities
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
}

const _: () = assert!(SEND.as_secs() == 10, "the default that --timeout shows");
const _: () = assert!(BACKOFF_BASE.as_millis() == 100, "that of --backoff-base");
const _: () = assert!(BACKOFF_CAP.as_secs() == 2, "that of --backoff-cap");
const _: () = assert!(RESUME.as_secs() == 24 * 3600, "that of --resume-within");

/// A duration greater than zero.
fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let some = (!time.is_zero()).then_some(time);
    some.ok_or_else(|| "expected more than zero, such as 5s".to_owned())
}

/// The budget of a name. The process sends one request and exits, so it needs none unless its caller
/// runs many of them.
fn budget(word: &str) -> Result<Budget, String> {
    match word {
        "unbounded" => Ok(Budget::unbounded()),
        "default" => Ok(Budget::default()),
        "strict" => Ok(Budget::strict()),
        _ => Err("must be unbounded, default or strict".to_owned()),
    }
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let request = request::read(&args)?;
    let client = client(&args)?;
    let has_journal = args.journal.is_some();
    match client.send(request).await {
        Ok(answer) => report::answer(context.output, &answer, has_journal),
        Err(SendError::NoResponse {
            key,
            stopped,
            attempts,
            source,
        }) => {
            let error_chain = environment::error_chain(&*source);
            let key = key.as_ref();
            let kept = Kept { key, has_journal };
            report::silence(context.output, kept, stopped, &attempts, &error_chain)
        }
        Err(error @ SendError::Stale { .. }) => {
            let within = args.resume_within.as_secs();
            let error_chain = format!(
                "{error}. Nothing was sent, for it could be done a second time. Find out what became \
                 of it. To do it once more, run the command with --anew; if the service is known to \
                 keep keys for longer than {within} s, give that time as --resume-within"
            );
            Err(Failure::new(REFUSED, error_chain))
        }
        Err(error @ SendError::OtherKey) => Err(Failure::new(REFUSED, error.to_string())),
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

fn client(args: &Args) -> Result<Client, Failure> {
    let mut settings = Settings::new(environment::clock(), environment::random());
    settings.policy = Policy {
        backoff: Backoff {
            base: args.backoff_base,
            cap: args.backoff_cap,
            attempts_max: args.attempts,
            total: args.timeout,
        },
        budget: args.budget,
        attempt_max: args.attempt_timeout,
    };
    if let Some(path) = &args.journal {
        let journal = FileJournal::new(path, environment::clock());
        settings.journal = Some(Arc::new(journal));
    }
    settings.resume_within = args.resume_within;
    if let Some(path) = &args.cacert {
        let read = std::fs::read(path);
        let unread = |error| Failure::new(USAGE, format!("--cacert {}: {error}", path.display()));
        settings.trusted.push(read.map_err(unread)?);
    }
    settings.watch = Some(Watch::new(watch));
    Client::new(settings).map_err(|error| Failure::new(USAGE, error.to_string()))
}

/// Prints a line about an attempt.
fn watch(attempt: &Attempt, wait: Option<Duration>) {
    let status = attempt.status.map(|status| status.to_string());
    let said = [
        status.as_deref(),
        attempt.code.as_deref(),
        Some(&*attempt.notes),
    ];
    let said: Vec<_> = said
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .collect();
    let next = wait.map(|wait| format!(", again in {} ms", wait.as_millis()));
    let next = next.unwrap_or_default();
    // Text from a server must not control the terminal.
    let line = format!("attempt {}: {}{next}", attempt.attempt, said.join(" "));
    note(line.replace(char::is_control, " "));
}
