//! A separate server process for each test, and a client that sends one request a connection.
//!
//! The state of the server is in a temporary folder; the process is killed at the end.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A running server.
pub(crate) struct Server {
    folder: TempDir,
    profile: String,
    bug: Option<String>,
    more: Vec<String>,
    process: Child,
    /// Host and port of both nodes.
    addresses: Vec<String>,
}

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Starts a server with an empty state.
    pub(crate) fn start(profile: &str, bug: Option<&str>) -> Self {
        Self::start_with(profile, bug, &[])
    }

    /// Starts a server with an empty state and with more arguments.
    pub(crate) fn start_with(profile: &str, bug: Option<&str>, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let free = ["127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned()];
        let bug = bug.map(str::to_owned);
        let more: Vec<String> = more.iter().map(|it| (*it).to_owned()).collect();
        let line = command_line(folder.path(), profile, bug.as_deref(), &more, &free);
        let (process, addresses) = spawn(&line);
        Self {
            folder,
            profile: profile.to_owned(),
            bug,
            more,
            process,
            addresses,
        }
    }

    /// The folder of the state, for further files of a test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Host and port of both nodes.
    pub(crate) fn addresses(&self) -> [&str; 2] {
        [&self.addresses[0], &self.addresses[1]]
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The command that starts the server again at the same addresses.
    pub(crate) fn command_line(&self) -> Vec<String> {
        command_line(
            self.folder(),
            &self.profile,
            self.bug.as_deref(),
            &self.more,
            &self.addresses,
        )
    }

    /// Kills the server, and starts it again at the same addresses.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let (process, addresses) = spawn(&self.command_line());
        assert_eq!(addresses, self.addresses);
        self.process = process;
    }

    /// Creates an order.
    pub(crate) fn post(&self, node: usize, key: &str, payload: &str) -> Response {
        let length = payload.len();
        let head = format!("Idempotency-Key: {key}\r\nContent-Length: {length}\r\n");
        self.send(node, &format!("POST /orders HTTP/1.1\r\n{head}"), payload)
    }

    /// Sends half of a payload, and closes the direction to the server.
    pub(crate) fn send_cut(&self, node: usize, key: &str, payload: &str) {
        let length = payload.len();
        let head = format!("Idempotency-Key: {key}\r\nContent-Length: {length}\r\n");
        let half = &payload[..length / 2];
        self.send(node, &format!("POST /orders HTTP/1.1\r\n{head}"), half);
    }

    /// How many orders there are.
    pub(crate) fn effects(&self) -> usize {
        let response = self.send(0, "GET /orders HTTP/1.1\r\n", "");
        let orders: Vec<serde_json::Value> =
            serde_json::from_slice(&response.body).expect("a JSON array");
        orders.len()
    }

    fn send(&self, node: usize, head: &str, body: &str) -> Response {
        let mut stream = TcpStream::connect(&self.addresses[node]).expect("the server listens");
        let more = "Host: toy\r\nAuthorization: Bearer alice\r\nContent-Type: application/json\r\n";
        let request = format!("{head}{more}Connection: close\r\n\r\n{body}");
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        stream
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the server responds");
        Response::parse(&bytes)
    }

    fn stop(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("the server is a child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Response {
    /// All values of a header, whose name is given in lower case.
    pub(crate) fn headers(&self, name: &str) -> Vec<Vec<u8>> {
        let lines = self.head.split(|byte| *byte == b'\n');
        let values = lines.filter_map(|line| {
            let (known, value) = line.split_at_checked(name.len())?;
            let is_named = known.eq_ignore_ascii_case(name.as_bytes()) && value.starts_with(b":");
            is_named.then(|| value.to_vec())
        });
        values.collect()
    }

    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("the head is complete");
        let status = std::str::from_utf8(&bytes[9..12]).expect("a status is ASCII");
        Self {
            status: status.parse().expect("a status is a number"),
            head: bytes[..end].to_vec(),
            body: bytes[end + 4..].to_vec(),
        }
    }
}

fn command_line(
    folder: &Path,
    profile: &str,
    bug: Option<&str>,
    more: &[String],
    addresses: &[String],
) -> Vec<String> {
    let state = folder.join("state").display().to_string();
    let mut line = [
        env!("CARGO_BIN_EXE_toy-server"),
        "--state",
        &state,
        "--profile",
        profile,
        "--listen",
        &addresses[0],
        "--second",
        &addresses[1],
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(bug) = bug {
        line.extend(["--bug".to_owned(), bug.to_owned()]);
    }
    line.extend_from_slice(more);
    line
}

/// Starts the process; returns it with its addresses once it listens.
fn spawn(line: &[String]) -> (Child, Vec<String>) {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).stdout(Stdio::piped());
    let mut process = command.spawn().expect("the server starts");
    let stdout = process.stdout.take().expect("stdout is a pipe");
    let lines = BufReader::new(stdout).lines().take(2);
    let addresses = lines.map(|line| {
        let line = line.expect("the server prints text");
        let address = line.strip_prefix("listening on http://");
        address.expect("the server listens").to_owned()
    });
    let addresses: Vec<_> = addresses.collect();
    assert_eq!(addresses.len(), 2, "the server ended");
    (process, addresses)
}
