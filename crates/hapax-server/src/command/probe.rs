//! `hapax probe`: tests from outside whether an HTTP server keeps the promise of `Idempotency-Key`.
//!
//! The command is that of `hapax-probe`. It reads no configuration and no database.

use std::process::ExitCode;

use hapax_probe::{Arguments, ReportFormat};

use super::Failure;
use crate::output::{Output, USAGE};

pub(crate) fn run(arguments: Arguments, output: Output) -> Result<ExitCode, Failure> {
    if output.csv {
        return Err(Failure::new(
            USAGE,
            "--csv: expected --report text, json, junit or sarif",
        ));
    }
    let arguments = if output.json {
        arguments.default_report(ReportFormat::Json)
    } else {
        arguments
    };
    Ok(arguments.run())
}
