//! An app with an installed package, which runs on a free port of loopback.
//!
//! The app is ready when it accepts a connection. It is killed when the value is dropped.

use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    Folders, PACKAGES,
    manifest::Peer,
    running::{self, Running},
};
use crate::port::free_port;

const START_LIMIT: Duration = Duration::from_mins(1);
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// The header with which the app creates a session. It requires a key, like any POST of the app.
const KEY: &str = "Idempotency-Key: session";

/// A running app.
#[derive(Debug)]
pub(super) struct App {
    _running: Running,
    port: u16,
}

impl App {
    /// Starts the app of a package and waits until it listens.
    pub(super) fn start(folders: &Folders, peer: &Peer) -> anyhow::Result<Self> {
        let (program, arguments) = peer.start.split_first().context("`start` is empty")?;
        let folder = folders.installed(peer);
        let port = free_port();
        let mut command = running::command(program);
        command
            .args(arguments)
            .env("PORT", port.to_string())
            .env("NODE_ENV", "production")
            .env("PYTHONPATH", folder.join(PACKAGES))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(folder);
        let output = folders.file(peer, "app.log");
        let mut running = Running::start("the app", command, &output)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let second = Duration::from_secs(1);
        let listens = || TcpStream::connect_timeout(&address, second).is_ok();
        running.ready(START_LIMIT, listens)?;
        Ok(Self {
            _running: running,
            port,
        })
    }

    /// The URL of a path of the app.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Creates a session, if the app requires one, and returns its cookie.
    pub(super) fn session(&self, folders: &Folders, peer: &Peer) -> anyhow::Result<Option<String>> {
        let Some(path) = &peer.session else {
            return Ok(None);
        };
        let mut curl = running::command("curl");
        curl.args(["--silent", "--show-error", "--include", "--noproxy", "*"])
            .args(["--max-time", "10", "--request", "POST", "--header", KEY])
            .arg(self.url(path));
        let output = folders.file(peer, "session.log");
        let response = running::succeed("curl", curl, &output, REQUEST_LIMIT)?;
        let cookie = cookie(&response).with_context(|| format!("POST {path} set no cookie"))?;
        Ok(Some(cookie.to_owned()))
    }
}

/// The name and value of the first cookie that a response sets.
fn cookie(response: &str) -> Option<&str> {
    response.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let cookie = value.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("set-cookie").then_some(cookie)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_a_session_is_sent_without_its_attributes() {
        let response = "HTTP/1.1 204 No Content\r\nset-cookie: session=a=b; Path=/; Secure\r\n\r\n";
        assert_eq!(cookie(response), Some("session=a=b"));
        assert_eq!(cookie("HTTP/1.1 204 No Content\r\n\r\n"), None);
    }
}
