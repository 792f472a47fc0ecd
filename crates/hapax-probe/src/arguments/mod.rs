//! The command line: flags become a plan, the plan is run, and the report is printed.
//!
//! An operation is described by flags, or by a plan file. With a plan file only those flags are allowed
//! that concern the run and not the server: which checks, which profile, which report.

mod console;
mod listing;
mod operation;
mod output;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Plan, PlanError, Report, ReportFormat, Verdict, profile::Profile, run::run};

use console::Console;
use operation::OperationFlags;
use output::Output;

/// The profile without `--profile`.
const PROFILE: &str = "ietf";
/// The exit code if nothing could be judged.
const NOT_JUDGED: u8 = 2;

/// The arguments of `hapax-probe` and of `hapax probe`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// File that describes the operations and how effects are counted
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Specification whose rules apply: hapax, ietf, stripe, acp, ucp, adcp or iceberg [default: ietf]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Run only these checks or groups, such as `replay` or `lost.body`
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Do not run these checks or groups
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    skip: Vec<String>,
    /// Seed of the payloads; the same seed sends the same payloads [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Format of the report [default: text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    report: Option<ReportFormat>,
    /// Write the report to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write the report in another format, such as `junit=probe.xml`; may be given more than
    /// once
    #[arg(long, value_name = "FORMAT=FILE")]
    also: Vec<Also>,
    /// Print the requests as commands and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Allow public addresses: the server is yours, or its owner allows the test
    #[arg(long)]
    i_own_this: bool,
    /// Print the checks and the profiles
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    operation: OperationFlags,
}

/// A further report: its format and its file.
#[derive(Clone, Debug)]
struct Also {
    format: ReportFormat,
    path: PathBuf,
}

impl FromStr for Also {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected FORMAT=FILE, such as junit=probe.xml".to_owned();
        let (format, path) = text.split_once('=').ok_or_else(wrong)?;
        if path.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            format: clap::ValueEnum::from_str(format, false)?,
            path: path.into(),
        })
    }
}

impl Arguments {
    /// Sets the format of the report if the arguments contain none.
    #[must_use]
    pub fn default_report(mut self, format: ReportFormat) -> Self {
        self.report = self.report.or(Some(format));
        self
    }

    /// Runs the probe and prints the report. The exit code is 0 if everything that was judged holds, 1
    /// if a check failed, and 2 if something could not be judged or the arguments are not valid.
    pub fn run(self) -> ExitCode {
        match self.try_run() {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                // Without standard error there is no place for the reason.
                let _ = writeln!(io::stderr().lock(), "hapax probe: {error:#}");
                ExitCode::from(NOT_JUDGED)
            }
        }
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let format = self.report.unwrap_or(ReportFormat::Text);
        let to_file = self.output.is_some();
        let output = Output::new(self.output.as_deref())?;
        if self.list {
            output.write(&listing::render(format))?;
            return Ok(0);
        }
        let mut also = Vec::new();
        for Also { format, path } in &self.also {
            also.push((*format, Output::new(Some(path.as_path()))?));
        }
        let plan = self.into_plan()?;
        let console = Console::new(plan.dry_run);
        let report = carried_out(&plan, &console)?;
        if plan.dry_run {
            output.write(&console.into_commands())?;
            return Ok(0);
        }
        output.write(&report.render(format))?;
        for (format, output) in also {
            output.write(&report.render(format))?;
        }
        if to_file {
            // A log of CI would otherwise not show how the run ended.
            let _ = writeln!(io::stderr().lock(), "{}", summary(&report));
        }
        Ok(report.exit_code())
    }

    fn into_plan(self) -> Result<Plan, PlanError> {
        let mut plan = match &self.plan {
            Some(path) => Plan::from_file(path)?,
            None => self.operation.into_plan(profile(PROFILE)?)?,
        };
        if let Some(name) = &self.profile {
            plan.profile = profile(name)?;
        }
        if let Some(seed) = self.seed {
            plan.seed = seed;
        }
        if !self.only.is_empty() {
            plan.only = self.only;
        }
        plan.skip.extend(self.skip);
        plan.dry_run = self.dry_run;
        plan.public |= self.i_own_this;
        Ok(plan)
    }
}

fn profile(name: &str) -> Result<&'static Profile, PlanError> {
    Profile::named(name).map_err(|problem| PlanError::setting("profile", problem))
}

fn carried_out(plan: &Plan, console: &Console) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let report = runtime.block_on(until_stopped(plan, console));
    console.clear();
    report
}

/// Runs a plan until it ends or the program gets a signal. The commands of a plan, which are not in the
/// process group of the terminal, are killed when the run is dropped.
async fn until_stopped(plan: &Plan, console: &Console) -> anyhow::Result<Report> {
    tokio::select! {
        report = Box::pin(run(plan, console)) => Ok(report?),
        received = stopped() => {
            received.context("signals cannot be received")?;
            anyhow::bail!("the run was stopped by a signal")
        }
    }
}

/// Waits for a signal that ends the program.
async fn stopped() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn summary(report: &Report) -> String {
    format!(
        "{} pass, {} fail, {} unknown",
        report.count(Verdict::Pass),
        report.count(Verdict::Fail),
        report.count(Verdict::Unknown)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(flags: &[&str]) -> Result<Arguments, clap::Error> {
        let program = std::iter::once(&"probe");
        Cli::try_parse_from(program.chain(flags)).map(|it| it.arguments)
    }

    fn plan(flags: &[&str]) -> Plan {
        let arguments = parsed(flags).expect("valid flags");
        arguments.into_plan().expect("a valid plan")
    }

    #[test]
    fn flags_become_a_plan() {
        let plan = plan(&[
            "http://127.0.0.1:8080/orders",
            "--body-text",
            r#"{"amount": 1}"#,
            "--vary=/amount",
            "--only=replay,lost.body",
            "--skip=nodes",
            "--seed=9",
            "--profile=acp",
            "--i-own-this",
            "--rate=50",
            "--wait=3s",
        ]);
        assert_eq!(plan.profile.name, "acp");
        assert_eq!(plan.only, ["replay", "lost.body"]);
        assert_eq!(plan.skip, ["nodes"]);
        assert_eq!((plan.seed, plan.rate.get()), (9, 50));
        assert_eq!(plan.wait, std::time::Duration::from_secs(3));
        assert!(plan.public);
        assert_eq!(plan.operations.len(), 1);
        assert_eq!(plan.operations[0].method, "POST");
        assert_eq!(plan.operations[0].name, "POST /orders");
    }

    #[test]
    fn a_plan_file_is_not_mixed_with_flags_of_an_operation() {
        for flags in [
            &["--plan=probe.toml", "http://127.0.0.1/orders"][..],
            &["--plan=probe.toml", "--method=PUT"],
            &["--plan=probe.toml", "--max-requests=3"],
        ] {
            let error = parsed(flags).expect_err("the flags are in conflict");
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
        }
        let flags = [
            "--plan=probe.toml",
            "--seed=3",
            "--only=replay",
            "--dry-run",
        ];
        assert!(parsed(&flags).is_ok());
    }

    #[test]
    fn flags_override_the_run_of_a_plan_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("probe.toml");
        let text =
            "profile = \"ietf\"\nseed = 4\n[[operation]]\nurl = \"http://127.0.0.1/orders\"\n";
        std::fs::write(&path, text).expect("the file can be written");
        let file = path.to_str().expect("a UTF-8 path");
        let unchanged = plan(&["--plan", file]);
        assert_eq!((unchanged.profile.name, unchanged.seed), ("ietf", 4));
        let changed = plan(&["--plan", file, "--profile=ucp", "--seed=5"]);
        assert_eq!((changed.profile.name, changed.seed), ("ucp", 5));
    }

    #[test]
    fn without_an_operation_the_error_says_what_is_expected() {
        let arguments = parsed(&[]).expect("valid flags");
        let error = arguments.into_plan().expect_err("there is no operation");
        assert!(error.to_string().contains("--plan"), "{error}");
    }

    #[test]
    fn a_further_report_has_a_format_and_a_file() {
        let also: Also = "junit=a=b.xml".parse().expect("a format and a file");
        assert_eq!(also.format, ReportFormat::Junit);
        assert_eq!(also.path, PathBuf::from("a=b.xml"));
        for wrong in ["junit", "junit=", "xml=a"] {
            assert!(wrong.parse::<Also>().is_err(), "{wrong}");
        }
    }
}
