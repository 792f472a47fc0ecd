//! Floods of hostile requests, and their effect on other requests.
//!
//! While expensive bodies or half-open requests arrive, the nemesis requests `/healthz` of the shop
//! on separate connections and measures the memory of the process. At a relay the flood targets the
//! metrics listener, and the relay has few file descriptors: there, a checker verifies that events
//! still arrive.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{Nemesis, canary, watch};
use crate::{clients::TENANTS, deployment::Program, lines::now};

/// Bytes of a body of JSON with a short name for each member: below what an upload may have.
const MEMBERS: usize = 32 << 20;
/// Brackets in one another, each its own level.
const NESTED: usize = 1 << 20;
/// Number of parts of a form, each of a few bytes.
const PARTS: usize = 200_000;
/// Requests with a body that are sent at once.
const BODIES: usize = 6;
/// Bytes per write.
const PIECE: usize = 64 << 10;
/// Number of accepted bytes from which on a flood has accepted effect.
const ACCEPTED: usize = 1 << 20;
/// Pause between a response and the next request of one sender.
const AGAIN: Duration = Duration::from_millis(10);
/// Requests that never end, to each shop or relay: fewer than a shop has connections for, and more than
/// a relay has descriptors.
const HALVES: usize = 300;
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(9);
/// Time between two bytes of a head that never ends.
const DRIP: Duration = Duration::from_millis(500);
/// Interval and timeout of the liveness requests to a shop.
const ASK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);

/// What is sent, and to which shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// JSON with millions of members, to the upload route.
    Members(usize),
    /// JSON that consists of opening brackets only.
    Nested(usize),
    /// Forms with very many parts.
    Parts(usize),
    /// Heads that never end, to a shop.
    Halves(usize),
    /// The same, to the ports of the relays' metrics and of their admin API.
    RelayHalves,
}

/// Hostile bodies, generated once.
#[derive(Clone, Debug, Default)]
pub(super) struct Bodies {
    members: Bytes,
}

impl Flood {
    /// The kind of the fault in the log.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Members(_) => "flood of members",
            Self::Nested(_) => "flood of brackets",
            Self::Parts(_) => "flood of parts",
            Self::Halves(_) => "flood of half requests to a shop",
            Self::RelayHalves => "flood of half requests to relays",
        }
    }

    /// Runs a flood, and records the latency of other requests; returns whether the flood was accepted.
    pub(super) async fn inject(
        self,
        nemesis: &mut Nemesis,
        line: &mut Value,
    ) -> anyhow::Result<bool> {
        nemesis.deployment.up().await?;
        match self {
            Self::Members(at) => {
                let body = nemesis.bodies.members();
                bodies(nemesis, at, "/uploads", "application/json", body, line).await
            }
            Self::Nested(at) => {
                let body = Bytes::from(vec![b'['; NESTED]);
                bodies(nemesis, at, "/orders", "application/json", body, line).await
            }
            Self::Parts(at) => {
                let kind = "multipart/form-data; boundary=b";
                bodies(nemesis, at, "/uploads", kind, parts(), line).await
            }
            Self::Halves(at) => {
                let address = nemesis.deployment.shop_address(at);
                let opened = Arc::new(AtomicUsize::new(0));
                let flood = halves(vec![address.clone(); HALVES], Arc::clone(&opened));
                watched(&nemesis.deployment.shops[at], &address, flood, line).await;
                line["opened"] = opened.load(Ordering::Relaxed).into();
                Ok(opened.load(Ordering::Relaxed) >= HALVES)
            }
            Self::RelayHalves => relays(nemesis, line).await,
        }
    }
}

impl Bodies {
    fn members(&mut self) -> Bytes {
        if self.members.is_empty() {
            let mut body = Vec::with_capacity(MEMBERS);
            body.push(b'{');
            let mut number: u32 = 1;
            while body.len() + 16 < MEMBERS {
                // A linear congruential generator yields each name once, in no order.
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let name = (0..7).map(|at| b"abcdefghijklmnop"[(number >> (4 * at)) as usize & 15]);
                let separator: &[u8] = if body.len() > 1 { b",\"" } else { b"\"" };
                body.extend_from_slice(separator);
                body.extend(name);
                body.extend_from_slice(b"\":0");
            }
            body.push(b'}');
            self.members = body.into();
        }
        self.members.clone()
    }
}

/// Sends a body repeatedly.
async fn bodies(
    nemesis: &Nemesis,
    at: usize,
    path: &str,
    content_type: &'static str,
    body: Bytes,
    line: &mut Value,
) -> anyhow::Result<bool> {
    let address = nemesis.deployment.shop_address(at);
    let accepted = Arc::new(Accepted::default());
    let flood = {
        let (accepted, address) = (Arc::clone(&accepted), address.clone());
        async move {
            let mut senders = JoinSet::new();
            for number in 0..BODIES {
                let tenant = TENANTS[number % TENANTS.len()];
                let head = format!(
                    "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer token-{tenant}\r\n\
                     content-type: {content_type}\r\ncontent-length: {}\r\n",
                    body.len()
                );
                let (body, address, accepted) =
                    (body.clone(), address.clone(), Arc::clone(&accepted));
                senders.spawn(async move {
                    loop {
                        let key = format!("idempotency-key: flood-{number}-{}\r\n\r\n", now());
                        let request = [head.as_bytes(), key.as_bytes()].concat();
                        // A server that rejects the request before its end closes the connection;
                        // the sender then reconnects.
                        let _ended = send(&address, &request, &body, &accepted).await;
                        pace(AGAIN).await;
                    }
                });
            }
            senders.join_all().await;
        }
    };
    watched(&nemesis.deployment.shops[at], &address, flood, line).await;
    let bytes = accepted.bytes.load(Ordering::Relaxed);
    let responses = accepted.responses.load(Ordering::Relaxed);
    line["bytes"] = bytes.into();
    line["responses"] = responses.into();
    Ok(bytes > ACCEPTED)
}

/// Bytes of a flood that were accepted, and the number of responses.
#[derive(Debug, Default)]
struct Accepted {
    bytes: AtomicUsize,
    responses: AtomicUsize,
}

/// Sends a request as fast as it is accepted, until there is a response.
async fn send(address: &str, head: &[u8], body: &[u8], accepted: &Accepted) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut response, mut request) = stream.split();
    let sending = async {
        request.write_all(head).await?;
        for piece in body.chunks(PIECE) {
            request.write_all(piece).await?;
            accepted.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        }
        std::future::pending::<std::io::Result<usize>>().await
    };
    let mut buffer = [0; 1024];
    let read = tokio::select! {
        read = response.read(&mut buffer) => read?,
        ended = sending => ended?,
    };
    accepted
        .responses
        .fetch_add(usize::from(read > 0), Ordering::Relaxed);
    Ok(())
}

/// Opens connections and sends one byte of a head at intervals.
async fn halves(addresses: Vec<String>, opened: Arc<AtomicUsize>) {
    let mut open = JoinSet::new();
    for address in addresses {
        let opened = Arc::clone(&opened);
        open.spawn(async move {
            // A sender that is rejected tries again.
            loop {
                if let Ok(mut stream) = TcpStream::connect(&address).await {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let mut sent = stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ").await;
                    while sent.is_ok() {
                        pace(DRIP).await;
                        sent = stream.write_all(b"x").await;
                    }
                }
                pace(DRIP).await;
            }
        });
    }
    open.join_all().await;
}

/// Runs a flood for a while, and meanwhile requests `/healthz` of the shop.
async fn watched(shop: &Program, address: &str, flood: impl Future<Output = ()>, line: &mut Value) {
    let (mut waits, mut late, mut peak) = (Vec::new(), Vec::new(), 0);
    let look = async {
        let until = Instant::now() + FLOOD;
        while Instant::now() < until {
            let sent_at = Instant::now();
            let is_alive = timeout(PATIENCE, is_alive(address)).await == Ok(true);
            let waited = if is_alive {
                sent_at.elapsed()
            } else {
                PATIENCE
            };
            waits.push(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
            peak = shop.resident().max(peak);
            let paused_at = Instant::now();
            pace(ASK).await;
            let more = paused_at.elapsed().saturating_sub(ASK);
            late.push(u64::try_from(more.as_millis()).unwrap_or(u64::MAX));
        }
    };
    tokio::select! {
        () = look => {}
        () = flood => {}
    }
    line["healthz_ms"] = percentiles(waits);
    // How late the pauses between the requests ended. They wait for nothing but the machine, so
    // high values say that it had no time for the requests either.
    line["late_ms"] = percentiles(late);
    line["peak"] = json!(peak);
}

/// The number of values, their median and their 99th percentile.
fn percentiles(mut values: Vec<u64>) -> Value {
    values.sort_unstable();
    // Of fewer than a hundred, the 99th percentile is the slowest.
    let part =
        |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1));
    json!({ "count": values.len(), "p50": part(50), "p99": part(99) })
}

/// Requests `/healthz` of a shop on a separate connection.
async fn is_alive(address: &str) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response.starts_with(b"HTTP/1.1 200"))
    };
    exchange.await.unwrap_or(false)
}

/// Occupies the connections of the relays' listeners while events are to be delivered.
async fn relays(nemesis: &mut Nemesis, line: &mut Value) -> anyhow::Result<bool> {
    if nemesis.deployment.relays.is_empty() || !canary(nemesis).await? {
        return Ok(false);
    }
    let relays = nemesis.deployment.relays.len();
    let ports = (0..relays).flat_map(|at| nemesis.deployment.relay_ports(at));
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let addresses = addresses.flat_map(|it| vec![it; HALVES / 2]).collect();
    let opened = Arc::new(AtomicUsize::new(0));
    let flood = halves(addresses, Arc::clone(&opened));
    tokio::select! {
        () = watch(FLOOD, line) => {}
        () = flood => {}
    }
    let opened = opened.load(Ordering::Relaxed);
    line["opened"] = opened.into();
    Ok(opened >= HALVES)
}

fn parts() -> Bytes {
    let mut body = Vec::new();
    for number in 0..PARTS {
        let part = format!(
            "--b\r\ncontent-disposition: form-data; name=\"n{number}\"; filename=\"f\"\r\n\r\nx\r\n"
        );
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(b"--b--\r\n");
    body.into()
}
