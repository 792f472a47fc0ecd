//! `hapax gateway`: runs in front of an HTTP service, and decides about unknown outcomes.

mod check;
mod key;
mod unknown;

use std::process::ExitCode;

use super::{Context, Failure};
use crate::gateway;

/// The listener of the quick start.
const LISTEN: &str = "127.0.0.1:8080";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Quick start: the URL of the service; every POST and PATCH with an Idempotency-Key is protected
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Address of the listener `http`, which --upstream sets to 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Say which operations are protected by which route, and what to look at
    #[command(
        after_help = "Example:\n  hapax gateway check --config gateway.toml --openapi openapi.json"
    )]
    Check(check::Args),
    /// Make API keys for tenants
    Key(key::Args),
    /// List, show and decide requests whose outcome is unknown
    Unknown(unknown::Args),
}

impl Args {
    /// The settings given by flags.
    pub(super) fn given(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        let mut given = Vec::new();
        let mut set = |key, flag, text: &str| given.push((key, flag, Some(text.to_owned())));
        if let Some(upstream) = &self.upstream {
            set(
                "gateway.upstreams.service.instances",
                "--upstream",
                upstream,
            );
            set("gateway.routes.all.path", "--upstream", "/{*path}");
            set("gateway.routes.all.upstream", "--upstream", "service");
            // The file of SQLite is created.
            set("database.schema", "--upstream", "apply");
        }
        let default = self.upstream.as_ref().map(|_| LISTEN);
        if let Some(listen) = self.listen.as_deref().or(default) {
            set("gateway.listeners.http.listen", "--listen", listen);
        }
        given
    }
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    match args.verb {
        None => gateway::run(context).await?,
        Some(Verb::Check(args)) => return check::run(&args, &context).await,
        Some(Verb::Key(args)) => key::run(&args, &context)?,
        Some(Verb::Unknown(args)) => unknown::run(args, &context).await?,
    }
    Ok(ExitCode::SUCCESS)
}
