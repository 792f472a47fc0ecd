//! `toy-server`: the test subject of `hapax-probe`, correct by default, with one bug on demand.
//!
//! Two listeners are two nodes over one durable store, in one process. The server shares no code
//! with the probe and none with the library, so that a mistake of theirs is not repeated here. It
//! is made for a loopback address: its tokens are in its source.

mod bugs;
mod profile;
mod clock;
mod connection;
mod http;
mod route;
mod node;
mod handler;
mod key;
mod json;
mod fingerprint;
mod prepare;
mod protected;
mod orders;
mod response;
mod store;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Parser as _, ValueEnum as _};
use tokio::net::{TcpListener, TcpSocket};

use bugs::Bug;
use node::Node;
use profile::Profile;
use store::Store;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A server that keeps the promise of its profile, or breaks it in one chosen way
#[derive(Debug, clap::Parser)]
#[command(name = "toy-server")]
struct Arguments {
    /// Address of the first node; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of the second node
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    second: SocketAddr,
    /// File of the effects and keys; created if there is none
    #[arg(long, value_name = "FILE", required_unless_present = "list_bugs")]
    state: Option<PathBuf>,
    /// The text that the server keeps to
    #[arg(long, value_enum, default_value_t = Profile::Hapax)]
    profile: Profile,
    /// The bug to switch on
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    bug: Option<Bug>,
    /// How long a completed key is kept, such as 500ms, 5s, 10m or 24h
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    retention: Duration,
    /// File that is created when both nodes listen, with their URLs, one a line
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Prints name, profiles and description of each bug, separated by tabs
    #[arg(long)]
    list_bugs: bool,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.list_bugs {
        return list_bugs().context("stdout cannot be written");
    }
    let path = arguments.state.context("--state: expected a file")?;
    let rules = arguments.profile.rules();
    let is_gone = rules.expired_status.is_some();
    let store = Store::open(&path, arguments.retention, is_gone, arguments.bug)
        .with_context(|| format!("--state: {} cannot be read", path.display()))?;
    let store = Arc::new(store);
    let mut urls = Vec::new();
    let mut nodes = Vec::new();
    for (number, address) in [arguments.listen, arguments.second].into_iter().enumerate() {
        let listener = listen(address).with_context(|| format!("{address} is not free"))?;
        urls.push(format!("http://{}", listener.local_addr()?));
        let node = Node {
            number,
            profile: arguments.profile,
            rules,
            bug: arguments.bug,
            store: Arc::clone(&store),
        };
        nodes.push(tokio::spawn(accept(listener, Arc::new(node))));
    }
    let mut stdout = io::stdout();
    for url in &urls {
        writeln!(stdout, "listening on {url}")?;
    }
    stdout.flush()?;
    if let Some(path) = &arguments.ready_file {
        write_at_once(path, &format!("{}\n", urls.join("\n")))
            .with_context(|| format!("--ready-file: {} cannot be written", path.display()))?;
    }
    for node in nodes {
        node.await?;
    }
    Ok(())
}

/// Accepts connections until the process ends.
async fn accept(listener: TcpListener, node: Arc<Node>) {
    loop {
        // An error concerns one connection, or passes when others are closed.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if stream.set_nodelay(true).is_ok() {
            tokio::spawn(connection::serve(stream, Arc::clone(&node)));
        }
    }
}

/// Listens on an address, also if connections of a killed process linger on it.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Writes a file that another process reads as soon as it exists.
fn write_at_once(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

fn list_bugs() -> io::Result<()> {
    let mut stdout = io::stdout();
    for bug in Bug::all() {
        let names = bug.profiles().iter().filter_map(Profile::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        let (name, description) = (bug.name(), bug.description());
        writeln!(stdout, "{name}\t{}\t{description}", names.join(","))?;
    }
    stdout.flush()
}

/// Parses a number with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a duration such as \"5s\", got {text:?}");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let milliseconds = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err(wrong()),
    };
    let total = number.checked_mul(milliseconds).ok_or_else(wrong)?;
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("24h"), Ok(Duration::from_hours(24)));
        for wrong in ["5", "s", "-1s", "5 s", "5d", ""] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }
}
