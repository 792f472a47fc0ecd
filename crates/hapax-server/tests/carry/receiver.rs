//! Webhook receiver with a ledger of all requests and their times. It runs on a separate thread.
//!
//! It accepts every request. It has no database, and knows only the ids that it receives.

use std::{
    collections::HashSet,
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// One request in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) id: String,
    pub(crate) nonce: String,
    pub(crate) key: String,
    pub(crate) number: i64,
}

#[derive(Debug, Default)]
struct DestinationIndex {
    arrivals: Vec<Arrival>,
    nonces: HashSet<String>,
}

type Ledger = Arc<Mutex<DestinationIndex>>;

#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    ledger: Ledger,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Ledger::default();
        let theirs = Arc::clone(&ledger);
        thread::spawn(move || serve(listener, &theirs));
        Self { address, ledger }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Returns all requests in the order of their arrival.
    pub(crate) fn ledger(&self) -> Vec<Arrival> {
        self.ledger.lock().unwrap().arrivals.clone()
    }

    /// The number of different events that have arrived.
    pub(crate) fn events(&self) -> usize {
        self.ledger.lock().unwrap().nonces.len()
    }
}

/// Serves until the process ends, because a relay that was killed may still have a connection open.
fn serve(listener: TcpListener, ledger: &Ledger) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let ledger = Arc::clone(ledger);
            tokio::spawn(async move {
                let service = service_fn(|request| take(request, Arc::clone(&ledger)));
                let io = TokioIo::new(stream);
                // An error is expected here: the relay may be killed in the middle of a request.
                let _ended = http1::Builder::new().serve_connection(io, service).await;
            });
        }
    });
}

async fn take(
    request: Request<Incoming>,
    ledger: Ledger,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let id = request.headers().get("webhook-id");
    let id = id
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    // A request whose body is incomplete does not count as arrived.
    if let Ok(body) = request.into_body().collect().await {
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let said = &body["data"];
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let mut book = ledger.lock().unwrap();
        book.nonces.insert(text("nonce"));
        book.arrivals.push(Arrival {
            at: Instant::now(),
            id,
            nonce: text("nonce"),
            key: text("key"),
            number: said["number"].as_i64().unwrap_or_default(),
        });
    }
    Ok(Response::new(Empty::new()))
}
