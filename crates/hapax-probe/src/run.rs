//! A run: every selected check of every operation, one after the other.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::time::Instant;

use crate::{
    checks::{self, Check},
    effects::Listener,
    http::Connector,
    mask::Mask,
    plan::{Operation, Oracle, Plan, PlanError},
    report::{Finding, Report},
    subject::{DryRun, Session, Subject},
    verdict::{Judgement, Stop},
};

/// After this number of checks in a row without a response, the other checks send nothing.
const SILENT_CHECKS_MAX: u32 = 3;

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
    // All ports are opened first, so that one that is in use does not end a run half-way.
    let mut listeners = Vec::new();
    for operation in &plan.operations {
        listeners.push(listener(operation).await?);
    }
    for (operation, listener) in plan.operations.iter().zip(&listeners) {
        let dry = Dry(progress);
        let subject = Subject::new(plan, operation, &session, listener.as_ref(), &dry);
        let mut silence = Silence::new(&session);
        for check in &selected {
            progress.begins(findings.len(), all, &operation.name, check.id);
            let finding = judge(&subject, check, silence.is_long()).await;
            silence.note();
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

/// The checks in a row in which the server did not react to any request.
struct Silence<'a> {
    session: &'a Session,
    answered: u64,
    unanswered: u64,
    checks: u32,
}

impl<'a> Silence<'a> {
    fn new(session: &'a Session) -> Self {
        Self {
            session,
            answered: session.answered.get(),
            unanswered: session.unanswered.get(),
            checks: 0,
        }
    }

    /// Takes note of a check that has ended.
    fn note(&mut self) {
        let answered = self.session.answered.get();
        let unanswered = self.session.unanswered.get();
        if answered > self.answered {
            self.checks = 0;
        } else if unanswered > self.unanswered {
            self.checks += 1;
        }
        (self.answered, self.unanswered) = (answered, unanswered);
    }

    /// Whether further checks would only wait for a server that is not there.
    fn is_long(&self) -> bool {
        self.checks >= SILENT_CHECKS_MAX
    }
}

async fn judge(subject: &Subject<'_>, check: &Check, is_silent: bool) -> Finding {
    let judgement = match check.lacks(subject) {
        Some(missing) => missing,
        None if is_silent => Judgement::unknown(format!(
            "the server does not respond: {SILENT_CHECKS_MAX} checks in a row got no response"
        )),
        None => match check.judge(subject).await {
            Ok(judgement) => judgement,
            Err(stop) => stopped(&stop),
        },
    };
    let mask = Mask::new(&subject.plan.secrets(subject.operation));
    let commands = subject.take_commands().into_iter();
    Finding {
        operation: subject.operation.name.clone(),
        id: check.id,
        group: check.group(),
        asks: check.asks,
        verdict: judgement.verdict,
        seen: mask.apply(judgement.seen),
        source: subject.profile().source.title,
        source_url: subject.profile().source.url,
        commands: commands.map(|it| mask.apply(it)).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_checks_in_a_row_without_a_response_are_enough() {
        let connector = Connector::new(false, &[]).expect("a TLS configuration");
        let session = Session::new(connector, 1, 0);
        let mut silence = Silence::new(&session);
        let mut check = |answered: u64, unanswered: u64| {
            session.answered.set(session.answered.get() + answered);
            session
                .unanswered
                .set(session.unanswered.get() + unanswered);
            silence.note();
            silence.is_long()
        };
        assert!(!check(0, 2));
        assert!(!check(0, 1));
        // A check that sends nothing says nothing about the server.
        assert!(!check(0, 0));
        assert!(!check(1, 5));
        assert!(!check(0, 1));
        assert!(!check(0, 1));
        assert!(check(0, 1));
    }
}
