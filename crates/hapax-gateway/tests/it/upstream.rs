//! Upstream of the tests: a TCP server that writes every request to a ledger before it replies, and
//! that ends its replies as the test says.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A request as the upstream has received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The request line and the header lines.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The number of requests that were received before it.
    pub(crate) before: usize,
}

/// The reaction of the upstream after it has received a request.
pub(crate) enum Reply {
    /// Sends these bytes, and keeps the connection open.
    Bytes(Vec<u8>),
    /// Sends these bytes, and closes the connection.
    Cut(Vec<u8>),
    /// Sends nothing, and keeps the connection open.
    Nothing,
}

/// An upstream. Its listener is closed when it is dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: PathBuf,
    connections: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
    _folder: TempDir,
}

impl Received {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

impl Upstream {
    /// Starts an upstream that replies as `reply` says.
    pub(crate) async fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        fs::write(&ledger, "").unwrap();
        let (file, reply) = (ledger.clone(), Arc::new(reply));
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, file.clone(), Arc::clone(&reply)));
            }
        });
        Self {
            address,
            ledger,
            connections,
            accepting,
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number of connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The request lines that were received, in order.
    pub(crate) fn ledger(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.ledger).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A complete response with a body.
pub(crate) fn ok(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-from: service\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

async fn serve(
    mut stream: TcpStream,
    ledger: PathBuf,
    reply: Arc<impl Fn(&Received) -> Reply + Send + Sync + 'static>,
) {
    let mut read = Vec::new();
    while let Some(received) = receive(&mut stream, &mut read, &ledger).await {
        match reply(&received) {
            Reply::Bytes(bytes) => stream.write_all(&bytes).await.unwrap(),
            Reply::Cut(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                return;
            }
            Reply::Nothing => {}
        }
    }
}

/// Reads one request, and writes it to the ledger. Returns `None` if the connection has ended.
async fn receive(stream: &mut TcpStream, read: &mut Vec<u8>, ledger: &Path) -> Option<Received> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, read).await?;
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    read.drain(..end);
    let mut received = Received {
        head,
        body: Vec::new(),
        before: 0,
    };
    let length = received.header("content-length").map(str::to_owned);
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    if received.header("transfer-encoding").is_some() {
        while !read.ends_with(b"0\r\n\r\n") {
            more(stream, read).await?;
        }
        received.body = std::mem::take(read);
    } else {
        while read.len() < length {
            more(stream, read).await?;
        }
        received.body = read.drain(..length).collect();
    }
    received.before = fs::read_to_string(ledger).unwrap().lines().count();
    let mut file = OpenOptions::new().append(true).open(ledger).unwrap();
    let line = received.head.lines().next().unwrap_or_default();
    writeln!(file, "{line}").unwrap();
    file.sync_all().unwrap();
    Some(received)
}

async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(read).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
