//! An HTTP receiver on a plain socket, which can violate HTTP as no library can.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// The reaction of the receiver to a request.
pub(crate) enum Reply {
    /// Sends these bytes and waits for the next request.
    Send(String),
    /// Sends these bytes and closes.
    Tear(String),
    /// Sends these bytes, then nothing more until the sender closes the connection.
    Stall(String),
    /// Sends these bytes, then more bytes until the sender closes the connection.
    Flood(String),
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    taken: Arc<Mutex<Vec<Taken>>>,
    connections: Arc<AtomicUsize>,
}

type Script = dyn Fn(usize, &Taken) -> Reply + Send + Sync;

impl Receiver {
    /// Responds to request number `n` (starting at 0) with `script(n)`.
    pub(crate) async fn start(
        script: impl Fn(usize, &Taken) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            taken: Arc::default(),
            connections: Arc::default(),
        };
        let (taken, connections) = (receiver.taken.clone(), receiver.connections.clone());
        let script: Arc<Script> = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, taken.clone(), script.clone()));
            }
        });
        receiver
    }

    /// Responds to every request with `status` and no body.
    pub(crate) async fn answering(status: &'static str) -> Self {
        Self::start(move |_, _| Reply::Send(empty(status))).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks?a=b", self.address)
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A response with a status line and headers, without a body.
pub(crate) fn empty(status_and_headers: &str) -> String {
    format!("HTTP/1.1 {status_and_headers}\r\ncontent-length: 0\r\n\r\n")
}

async fn serve(stream: TcpStream, taken: Arc<Mutex<Vec<Taken>>>, script: Arc<Script>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let number = {
            let mut taken = taken.lock().unwrap();
            taken.push(request.clone());
            taken.len() - 1
        };
        let reply = script(number, &request);
        let (Reply::Send(text) | Reply::Tear(text) | Reply::Stall(text) | Reply::Flood(text)) =
            &reply;
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        match reply {
            Reply::Send(_) => {}
            Reply::Tear(_) => return,
            Reply::Stall(_) => {
                let mut rest = Vec::new();
                // Ends when the sender closes the connection.
                drop(stream.read_to_end(&mut rest).await);
                return;
            }
            Reply::Flood(_) => while stream.write_all(&[b'x'; 4096]).await.is_ok() {},
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Taken> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Taken {
        line: line.trim_end().to_owned(),
        headers,
        body,
    })
}
