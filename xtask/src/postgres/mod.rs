//! PostgreSQL for the chores: one that a chore starts for itself, or a server that is there.

mod programs;
mod server;

use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub(crate) use programs::{Programs, asked};
pub(crate) use server::Server;

/// What names the server that the tests use.
pub(crate) const NAME: &str = "HAPAX_TEST_POSTGRES";
const USUAL: ([u8; 4], u16) = ([127, 0, 0, 1], 5432);

/// Starts a server for the tests, unless one is named; it ends with the value.
///
/// It does not wait for the disk, and what runs beside the tests has no part in them. Where the
/// programs are missing, the server on the usual port will do.
pub(crate) fn for_tests() -> anyhow::Result<Option<Server>> {
    if std::env::var_os(NAME).is_some() {
        return Ok(None);
    }
    let programs = match Programs::installed() {
        Ok(programs) => programs,
        Err(_) if answers() => return Ok(None),
        Err(missing) => return Err(missing),
    };
    println!("    starting a PostgreSQL for these tests");
    Server::start(&programs).map(Some)
}

/// What tells the tests where this server is, and has them write beside its files: in memory, as a rule.
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
