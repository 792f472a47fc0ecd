//! Silent name server: a name server that never responds, and the processes that use it.
//!
//! These processes run in a mount namespace in which `/etc/resolv.conf` names that server; the names of
//! healthy receivers are in `/etc/hosts`. If this machine allows neither user nor mount namespaces,
//! the run has no such fault.

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

/// Host name of the feed's receiver, if the relays use the silent name server.
pub(crate) const FEED_HOST: &str = "feed.example";
/// Prefix of the names of the destinations whose host name is not resolved.
pub(crate) const UNRESOLVED: &str = "unresolved";
/// The port of name servers, which `/etc/resolv.conf` cannot change.
const PORT: u16 = 53;
/// Number of addresses that are tried: several runs may share a machine.
const TRIES: u8 = 20;
/// How often the thread checks whether the run is over.
const LOOK: Duration = Duration::from_millis(200);
/// Bind-mounts two files over others and then executes the program that follows.
const SCRIPT: &str = "mount --bind \"$0\" /etc/resolv.conf && mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// The name server, and the command with which its clients are started.
#[derive(Debug)]
pub(crate) struct SilentNameServer {
    queries: Arc<AtomicU64>,
    /// Prefix of the command line of a process.
    pub(super) wrapper: Vec<String>,
}

impl SilentNameServer {
    /// Starts it, with its files in `folder`; `None` if this machine does not allow it.
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
        let commands = [&["unshare", "-m"][..], &["unshare", "-rm"]];
        let commands =
            commands.map(|command| command.iter().map(|&it| it.to_owned()).chain(inner.clone()));
        let mut commands = commands.into_iter().map(Iterator::collect);
        let Some(wrapper) = commands.find(|it: &Vec<String>| is_allowed(it)) else {
            return Ok(None);
        };
        let queries = Arc::new(AtomicU64::new(0));
        listen(socket, Arc::downgrade(&queries))?;
        Ok(Some(Self { queries, wrapper }))
    }

    /// Number of queries that it has received so far.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
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

/// Counts the queries that arrive until the counter is dropped.
fn listen(socket: UdpSocket, queries: std::sync::Weak<AtomicU64>) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    thread::spawn(move || {
        while queries.strong_count() > 0 {
            if socket.recv(&mut [0; 512]).is_ok()
                && let Some(queries) = queries.upgrade()
            {
                queries.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}
