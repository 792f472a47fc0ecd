//! A name server that never answers, and the processes that use no other.
//!
//! They run in a mount namespace in which `/etc/resolv.conf` names that server; the names of
//! healthy receivers are in `/etc/hosts`. If this machine allows neither user nor mount namespaces,
//! the storm runs without this fault.

use std::{
    net::UdpSocket,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The name of the receiver of the feed, where relays have a silent name server.
pub(crate) const FEED_HOST: &str = "feed.example";
/// Domain of the destinations whose names do not resolve.
pub(crate) const LOST: &str = "lost";
/// The port of name servers, which `/etc/resolv.conf` cannot change.
const PORT: u16 = 53;
/// Addresses that are tried: several runs may be under way on a machine.
const TRIES: u8 = 20;
/// How often it is looked whether the run is over.
const LOOK: Duration = Duration::from_millis(200);
/// Bind-mounts two files over others and then executes the program that follows.
const SCRIPT: &str = "mount --bind \"$0\" /etc/resolv.conf && mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// The name server, and how to be one of its clients.
#[derive(Debug)]
pub(crate) struct Silence {
    heard: Arc<AtomicU64>,
    /// Prefix of the command line of a process.
    pub(super) wrapper: Vec<String>,
}

impl Silence {
    /// Starts it; its files go to `folder`.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Option<Self>> {
        let first = std::process::id().to_le_bytes();
        let addresses = (0..TRIES).map(|it| [127, 53, first[0], first[1].wrapping_add(it) | 1]);
        let bound = addresses.map(|it| (it, UdpSocket::bind((std::net::Ipv4Addr::from(it), PORT))));
        let Some(([a, b, c, d], Ok(socket))) = bound.into_iter().find(|(_, it)| it.is_ok()) else {
            return Ok(None);
        };
        let files = [
            ("resolv.conf", format!("nameserver {a}.{b}.{c}.{d}\n")),
            ("hosts", format!("127.0.0.1 localhost {FEED_HOST}\n")),
        ];
        let mut inner = vec!["sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned()];
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text)?;
            inner.push(path.display().to_string());
        }
        // Root needs no user namespace; other users become root in a new one.
        let ways = [&["unshare", "-m"][..], &["unshare", "-rm"]];
        let ways = ways.map(|way| way.iter().map(|&it| it.to_owned()).chain(inner.clone()));
        let mut ways = ways.into_iter().map(Iterator::collect);
        let Some(wrapper) = ways.find(|it: &Vec<String>| is_allowed(it)) else {
            return Ok(None);
        };
        let heard = Arc::new(AtomicU64::new(0));
        listen(socket, Arc::downgrade(&heard))?;
        Ok(Some(Self { heard, wrapper }))
    }

    /// Questions that it has heard so far.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

fn is_allowed(wrapper: &[String]) -> bool {
    let Some((program, arguments)) = wrapper.split_first() else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(arguments).arg("true").stderr(Stdio::null());
    command.status().is_ok_and(|it| it.success())
}

/// Counts the questions that arrive until the counter is dropped.
fn listen(socket: UdpSocket, heard: std::sync::Weak<AtomicU64>) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    thread::spawn(move || {
        while heard.strong_count() > 0 {
            if socket.recv(&mut [0; 512]).is_ok()
                && let Some(heard) = heard.upgrade()
            {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}
