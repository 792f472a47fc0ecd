//! PostgreSQL for the tasks: a server that the task starts, or one that is running.

#[path = "../../../crates/hapax-testkit/src/postgres/programs.rs"]
mod programs;
mod releases;
mod server;

use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::bail;

pub(crate) use programs::Programs;
pub(crate) use releases::{asked, has_failover_slots, link_failover, programs_of};
pub(crate) use server::Server;

/// The environment variable with the URL of the server for the tests.
pub(crate) const NAME: &str = "HAPAX_TEST_POSTGRES";
const USUAL: ([u8; 4], u16) = ([127, 0, 0, 1], 5432);

/// Starts a server for the tests, unless the environment names one. The server ends when the value
/// is dropped.
///
/// Such a server does not sync to disk, and no other program uses it. If PostgreSQL is not
/// installed, the tests use the server on the usual port.
pub(crate) fn for_tests() -> anyhow::Result<Option<Server>> {
    if std::env::var_os(NAME).is_some() {
        return Ok(None);
    }
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(_) if answers() => return Ok(None),
        Err(missing) => bail!("{missing}, or name a server in {NAME}"),
    };
    println!("    starting PostgreSQL for these tests");
    Server::start(&programs).map(Some)
}

/// The environment of the tests: the URL of this server, and a temporary folder next to its files,
/// usually in memory.
pub(crate) fn environment(server: Option<&Server>) -> Vec<(&'static str, String)> {
    let Some(server) = server else {
        return Vec::new();
    };
    let scratch = server.scratch().display().to_string();
    vec![(NAME, server.url()), ("TMPDIR", scratch)]
}

fn answers() -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(USUAL), Duration::from_secs(2)).is_ok()
}
