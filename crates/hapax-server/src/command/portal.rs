//! `hapax portal`: links that open the customer portal.

use std::process::ExitCode;

use hapax_console::portal::LinkRequest;

use super::{Context, Failure};
use crate::{
    admin::{command_context::CommandContext, portal::PortalLinkCreated},
    config::NO_PORTAL,
    environment,
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a link that opens the portal for a tenant; it must not be logged
    #[command(
        after_help = "Example:\n  hapax portal link --tenant alice --rights read --expires-in 15m"
    )]
    Link {
        /// Tenant that the link opens
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// Rights of the session: write, or read
        #[arg(long, value_name = "WORD", default_value = "write")]
        rights: String,
        /// How long the link and its session are valid: 1m to 24h
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        expires_in: String,
        /// Name of the user, which the pages show
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let Verb::Link {
        tenant,
        rights,
        expires_in,
        name,
    } = args.verb;
    let links = context.config.portal.links(environment::clock())?;
    let links = links.ok_or_else(|| Failure::new(USAGE, NO_PORTAL))?;
    let request = LinkRequest::read(tenant, Some(&rights), Some(&expires_in), name)?;
    let cx = CommandContext::open(&context).await?;
    let link = links.create(cx.store(), &cx.actor, request).await?;
    let url = link.url.clone();
    cx.say(&PortalLinkCreated::from(link), || url)?;
    Ok(ExitCode::SUCCESS)
}
