//! PostgreSQL for the chores: the server that is there, or one that a chore starts for itself.

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

/// What asks for a server of the tests' own, whatever is there: it never waits for the disk.
const PRIVATE: &str = "private";

/// Starts a server for the tests, unless they find one; it ends with the value.
pub(crate) fn for_tests() -> anyhow::Result<Option<Server>> {
    if let Some(named) = std::env::var_os(NAME) {
        if named != PRIVATE {
            return Ok(None);
        }
        println!("    starting a PostgreSQL for these tests");
        return Server::start(&Programs::installed()?).map(Some);
    }
    let usual = SocketAddr::from(USUAL);
    if TcpStream::connect_timeout(&usual, Duration::from_secs(2)).is_ok() {
        return Ok(None);
    }
    println!("    no PostgreSQL on {usual}: starting one for these tests");
    Server::start(&Programs::installed()?).map(Some)
}
