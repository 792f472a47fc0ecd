//! Fixture: `hapax relay` as a separate process beside the shop, from the same build.

use std::{path::Path, process::Command};

use hapax_testkit::relay::Relay;

/// The command of the binary with these arguments, in an empty environment, not started.
pub(crate) fn hapax(arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_shop")).with_file_name("hapax");
    hapax_testkit::relay::hapax(&path, arguments)
}

/// Starts a relay with this configuration, and waits until it delivers.
pub(crate) async fn start_relay(database: &str, configuration: &str, arguments: &[&str]) -> Relay {
    Relay::start(hapax(&[]), database, configuration, arguments).await
}
