//! `hapax secrets`: makes secrets from the randomness of the operating system.

use std::{io, process::ExitCode};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::signature::Secret;
use serde_json::json;

use super::Failure;
use crate::{environment::secret_bytes, output::Output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a new secret that signs webhooks (whsec_...); nothing is stored
    #[command(
        after_help = "Example:\n  hapax secrets new > webhook.secret\n  hapax secrets new --encryption-key > hapax.key"
    )]
    New {
        /// Print a key for `[secrets] key`, which encrypts the secrets of destinations declared at run
        /// time, instead
        #[arg(long)]
        encryption_key: bool,
    },
}

pub(crate) fn run(args: &Args, output: Output) -> Result<ExitCode, Failure> {
    let Verb::New { encryption_key } = args.verb;
    let secret = if encryption_key {
        STANDARD.encode(secret_bytes()?)
    } else {
        new_secret()?
    };
    if output.json {
        output.json(&json!({ "secret": secret }))?;
    } else {
        output.text(&format!("{secret}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A new secret that signs webhooks.
pub(super) fn new_secret() -> io::Result<String> {
    Ok(Secret::mint(secret_bytes()?).reveal())
}
