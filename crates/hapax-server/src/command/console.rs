//! `hapax console`: the web console as a separate process, for the database of any service.

use std::{net::SocketAddr, process::ExitCode};

use super::{Context, Failure};
use crate::{output::USAGE, wiring};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the console, which is served at /console; without tokens only a loopback address
    /// is allowed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9466")]
    listen: SocketAddr,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let address = args.listen;
    if context.config.admin.tokens.is_empty() && !address.ip().is_loopback() {
        let error_chain = format!(
            "--listen {address} is open to the network, and there are no [admin.tokens]: give \
             some, or listen on 127.0.0.1"
        );
        return Err(Failure::new(USAGE, error_chain));
    }
    wiring::console(context, address).await?;
    Ok(ExitCode::SUCCESS)
}
