//! `hapax gateway key`: makes API keys.
//!
//! A key is printed once. The gateway stores only its hash, which is in the entry.

use anyhow::Context as _;
use hapax::{admin::read_field, key::Tenant};
use hapax_gateway::tenant::api_keys::NewApiKey;
use serde_json::json;

use crate::command::{Context, Failure};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make an API key, and print it with its entry for the file of keys
    #[command(after_help = "Example:\n  hapax gateway key new --tenant acme")]
    New {
        /// Tenant of the key
        #[arg(long)]
        tenant: String,
    },
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let Verb::New { tenant } = &args.verb;
    let tenant = read_field("tenant", Some(tenant), "a tenant", |it| {
        Tenant::new(it).ok()
    })?;
    let made = tenant.as_ref().and_then(NewApiKey::random);
    let made = made.context("the system has no random numbers")?;
    let output = context.output;
    if output.json {
        let value = json!({ "key": made.key, "entry": made.entry });
        return Ok(output.json(&value)?);
    }
    output.line(format_args!("{}\n", made.key))?;
    output.line(made.lines().trim_end())?;
    Ok(())
}
