//! `hapax relay`: delivers events until the process is asked to stop.

use std::process::ExitCode;

use super::{Context, Failure};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of this relay among those that share the database
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Address of /metrics, /healthz and /readyz, or "off"
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of the admin API, or "off"
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Address at which consumers poll, or "off"
    #[arg(long, value_name = "ADDR")]
    poll_listen: Option<String>,
}

impl Args {
    /// The settings given by flags.
    pub(super) fn given(&self) -> [(&'static str, &'static str, Option<String>); 4] {
        [
            ("relay.node", "--node", self.node.clone()),
            ("relay.listen", "--listen", self.listen.clone()),
            ("admin.listen", "--admin-listen", self.admin_listen.clone()),
            ("poll.listen", "--poll-listen", self.poll_listen.clone()),
        ]
    }
}

pub(crate) async fn run(_: Args, context: Context) -> Result<ExitCode, Failure> {
    wiring::relay(context).await?;
    Ok(ExitCode::SUCCESS)
}
