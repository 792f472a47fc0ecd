//! A run: every selected check of every operation, one after the other.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::time::Instant;

use crate::{
    checks::{self, Check},
    effects::Listener,
    http::Connector,
    plan::{Operation, Oracle, Plan, PlanError},
    report::{Finding, Report},
    subject::{DryRun, Session, Subject},
    verdict::{Judgement, Stop},
};

/// Receives what a run does while it does it.
pub trait Progress: std::fmt::Debug {
    /// A check begins. `done` of `all` checks are finished.
    fn begins(&self, done: usize, all: usize, operation: &str, check: &str);
    /// A check is finished.
    fn finding(&self, finding: &Finding);
    /// A request of a dry run, as a command.
    fn would_send(&self, command: &str);
}

#[derive(Debug)]
struct Dry<'a>(&'a dyn Progress);

impl DryRun for Dry<'_> {
    fn request(&self, command: String) {
        self.0.would_send(&command);
    }
}

/// Runs a plan.
///
/// # Errors
/// Fails if the plan cannot be carried out at all: an authority's certificate cannot be read, the
/// port for webhooks is in use, or `only` and `skip` name a check that does not exist.
pub async fn run(plan: &Plan, progress: &dyn Progress) -> Result<Report, PlanError> {
    let selected = selected(plan)?;
    let session = Session::new(connector(plan)?, plan.seed, unix_ms());
    let start = Instant::now();
    let mut findings = Vec::new();
    let all = selected.len() * plan.operations.len();
    for operation in &plan.operations {
        let listener = listener(operation).await?;
        let dry = Dry(progress);
        let subject = Subject::new(plan, operation, &session, listener.as_ref(), &dry);
        for check in &selected {
            progress.begins(findings.len(), all, &operation.name, check.id);
            let finding = judge(&subject, check).await;
            progress.finding(&finding);
            findings.push(finding);
        }
    }
    Ok(Report {
        profile: plan.profile,
        seed: plan.seed,
        requests: session.sent.get(),
        elapsed: start.elapsed(),
        findings,
    })
}

/// Returns the checks that `only` and `skip` select. Both contain ids of checks or names of groups.
fn selected(plan: &Plan) -> Result<Vec<&'static Check>, PlanError> {
    let matches = |check: &Check, name: &String| check.id == name || check.group() == name;
    for (setting, names) in [("only", &plan.only), ("skip", &plan.skip)] {
        for name in names {
            if !checks::all().any(|it| matches(it, name)) {
                return Err(PlanError::setting(
                    setting,
                    format!("there is no check or group {name:?}; --list prints them"),
                ));
            }
        }
    }
    Ok(checks::all()
        .filter(|it| plan.only.is_empty() || plan.only.iter().any(|name| matches(it, name)))
        .filter(|it| !plan.skip.iter().any(|name| matches(it, name)))
        .collect())
}

async fn judge(subject: &Subject<'_>, check: &Check) -> Finding {
    let judgement = match check.lacks(subject) {
        Some(missing) => missing,
        None => match (check.run)(subject).await {
            Ok(judgement) => judgement,
            Err(stop) => stopped(&stop),
        },
    };
    Finding {
        operation: subject.operation.name.clone(),
        id: check.id,
        group: check.group(),
        asks: check.asks,
        verdict: judgement.verdict,
        seen: judgement.seen,
        source: subject.profile().source.title,
        source_url: subject.profile().source.url,
        commands: subject.take_commands(),
    }
}

fn stopped(stop: &Stop) -> Judgement {
    Judgement::unknown(stop.to_string())
}

async fn listener(operation: &Operation) -> Result<Option<Listener>, PlanError> {
    let Some(Oracle::Listen { port, .. }) = operation.oracle else {
        return Ok(None);
    };
    Listener::start(port)
        .await
        .map(Some)
        .map_err(|error| PlanError::setting("listen-effects", format!("port {port}: {error}")))
}

fn connector(plan: &Plan) -> Result<Connector, PlanError> {
    let authorities = match &plan.authorities {
        None => Vec::new(),
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| {
                PlanError::setting("ca-file", format!("{}: {error}", path.display()))
            })?,
    };
    Connector::new(plan.public, &authorities).map_err(|error| PlanError::setting("ca-file", error))
}

/// Returns the time of the machine, which is part of every key.
#[expect(
    clippy::disallowed_methods,
    reason = "keys that contain a time have to be near the time of the server"
)]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or_default()
}
