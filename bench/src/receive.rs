//! Minimal webhook receiver that records the arrival time of each event.
//!
//! It has one thread and supports only as much HTTP/1.1 as a sink uses. It expects the bodies of
//! `bench relay fill`, which contain the number of the event. It closes the connection if a
//! delivery has no id or no signature. It verifies the first signatures, and one in a thousand
//! after them.
//!
//! | request | response |
//! |---|---|
//! | `POST /` | 204, after the event is recorded |
//! | `GET /readyz` | 200 |
//! | `GET /seen` | `EVENTS DELIVERIES IDS`: different numbers, deliveries, different ids |
//! | `GET /arrivals` | first arrival of each number: ns since 1970, 8 bytes, little endian |

use std::{
    cell::RefCell,
    collections::HashSet,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::{Context as _, bail, ensure};
use hapax::signature::{self, Received, TOLERANCE, Verifier};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::LocalSet,
    time::sleep_until,
};

use crate::sources::{clock, now};

/// The secret with which the relay signs and the receiver verifies.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Maximum size of a request in bytes. The events of the benchmarks are much smaller.
pub(crate) const REQUEST_MAX: usize = 64 * 1024;
/// The number of first signatures that are verified, and the interval at which later ones are.
const CHECKED: (u64, u64) = (100, 1_000);
const TAKEN: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// Receives webhooks.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Number of events; their numbers start at 0
    #[arg(long, default_value_t = 1_000_000)]
    events: usize,
    /// Maximum number of deliveries per second; unlimited by default
    #[arg(long)]
    per_second: Option<u32>,
}

/// The deliveries so far.
struct Seen {
    arrivals: Vec<u64>,
    events: u64,
    deliveries: u64,
    ids: HashSet<String>,
    keys: Vec<Verifier>,
    /// The interval between two responses, and the time of the next one.
    pace: Option<(Duration, Instant)>,
}

impl Flags {
    /// Receives until the process is killed.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.listen))?;
        let pace = self.per_second.map(|per_second| {
            let between = Duration::from_secs(1) / per_second.max(1);
            (between, Instant::now())
        });
        let seen = Rc::new(RefCell::new(Seen {
            arrivals: vec![0; self.events],
            events: 0,
            deliveries: 0,
            ids: HashSet::with_capacity(self.events),
            keys: vec![Verifier::V1(SECRET.parse()?)],
            pace,
        }));
        let tasks = LocalSet::new();
        tasks
            .run_until(async {
                loop {
                    let (stream, _) = listener.accept().await.context("cannot accept")?;
                    stream.set_nodelay(true)?;
                    // If a client disconnects or sends an invalid request, its task ends.
                    tokio::task::spawn_local(serve(stream, Rc::clone(&seen)));
                }
            })
            .await
    }
}

async fn serve(mut stream: TcpStream, seen: Rc<RefCell<Seen>>) -> anyhow::Result<()> {
    let mut buffer = vec![0; 4 * 1024];
    let (mut start, mut filled) = (0, 0);
    loop {
        let Some(request) = Request::parse(&buffer[start..filled])? else {
            buffer.copy_within(start..filled, 0);
            (start, filled) = (0, filled - start);
            if filled == buffer.len() {
                ensure!(filled < REQUEST_MAX, "a request is too long");
                buffer.resize(filled * 2, 0);
            }
            match stream.read(&mut buffer[filled..]).await? {
                0 => return Ok(()),
                read => filled += read,
            }
            continue;
        };
        let answer = match request.line {
            line if line.starts_with(b"POST ") => {
                let turn = seen.borrow_mut().turn();
                if let Some(turn) = turn {
                    sleep_until(turn.into()).await;
                }
                seen.borrow_mut().take(&request)?;
                TAKEN.into()
            }
            line if line.starts_with(b"GET /seen ") => seen.borrow().told().into_bytes(),
            line if line.starts_with(b"GET /arrivals ") => seen.borrow().arrivals(),
            _ => answer(b""),
        };
        start += request.length;
        stream.write_all(&answer).await?;
    }
}

impl Seen {
    /// The time at which the next delivery may be answered, if the rate is limited.
    fn turn(&mut self) -> Option<Instant> {
        let (between, next) = self.pace.as_mut()?;
        let turn = (*next).max(Instant::now());
        *next = turn + *between;
        Some(turn)
    }

    fn take(&mut self, request: &Request<'_>) -> anyhow::Result<()> {
        let (first, every) = CHECKED;
        if self.deliveries < first || self.deliveries.is_multiple_of(every) {
            let received = request.received()?;
            signature::verify(&received, &self.keys, clock().now(), TOLERANCE)?;
        }
        ensure!(!request.signature.is_empty(), "a delivery is not signed");
        self.deliveries += 1;
        self.ids.insert(str::from_utf8(request.id)?.to_owned());
        let arrival = self.arrivals.get_mut(number(request.body)?);
        let arrival = arrival.context("the number of an event is out of range")?;
        if *arrival == 0 {
            *arrival = nanoseconds();
            self.events += 1;
        }
        Ok(())
    }

    fn told(&self) -> String {
        let body = format!("{} {} {}", self.events, self.deliveries, self.ids.len());
        String::from_utf8_lossy(&answer(body.as_bytes())).into_owned()
    }

    fn arrivals(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self
            .arrivals
            .iter()
            .flat_map(|at| at.to_le_bytes())
            .collect();
        answer(&bytes)
    }
}

/// The current time in nanoseconds since 1970, which producer and receiver compare.
pub(crate) fn nanoseconds() -> u64 {
    let since = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The number in a body: the digits after the first `"n":`.
pub(crate) fn number(body: &[u8]) -> anyhow::Result<usize> {
    const NAME: &[u8] = br#""n":"#;
    let at = body.windows(NAME.len()).position(|here| here == NAME);
    let digits = &body[at.context("a body has no number")? + NAME.len()..];
    let length = digits.iter().take_while(|it| it.is_ascii_digit()).count();
    Ok(str::from_utf8(&digits[..length])?.parse()?)
}

/// The parts of a request that the receiver uses.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    /// The first line.
    pub(crate) line: &'a [u8],
    id: &'a [u8],
    timestamp: &'a [u8],
    signature: &'a [u8],
    /// The body.
    pub(crate) body: &'a [u8],
    /// Length of the whole request in bytes.
    pub(crate) length: usize,
}

impl<'a> Request<'a> {
    /// Parses the request at the start of `bytes`; `None` if it is not complete.
    pub(crate) fn parse(bytes: &'a [u8]) -> anyhow::Result<Option<Self>> {
        let mut request = Self::default();
        let (mut at, mut body) = (0, 0);
        loop {
            let Some(feed) = bytes[at..].iter().position(|&byte| byte == b'\n') else {
                return Ok(None);
            };
            let line = bytes[at..at + feed].trim_ascii_end();
            at += feed + 1;
            if line.is_empty() {
                break;
            }
            if request.line.is_empty() {
                request.line = line;
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let (name, value) = line.split_at(colon.context("a header has no colon")?);
            let value = value[1..].trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                body = str::from_utf8(value)?.parse::<usize>()?;
            } else if name.eq_ignore_ascii_case(signature::ID_HEADER.as_bytes()) {
                request.id = value;
            } else if name.eq_ignore_ascii_case(signature::TIMESTAMP_HEADER.as_bytes()) {
                request.timestamp = value;
            } else if name.eq_ignore_ascii_case(signature::SIGNATURE_HEADER.as_bytes()) {
                request.signature = value;
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                bail!("a request has no content length");
            }
        }
        request.length = at + body;
        let whole = bytes.get(at..request.length);
        Ok(whole.map(|body| Self { body, ..request }))
    }

    /// The parts that are signed, and the signature.
    pub(crate) fn received(&self) -> anyhow::Result<Received<'a>> {
        Ok(Received {
            id: str::from_utf8(self.id)?,
            timestamp: str::from_utf8(self.timestamp)?,
            signature: str::from_utf8(self.signature)?,
            body: self.body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &[u8] = b"POST / HTTP/1.1\r\nwebhook-id: e1\r\nWebhook-Signature: v1,x\r\n\
        webhook-timestamp: 7\r\ncontent-length: 22\r\n\r\n{\"data\":{\"n\":42,\"m\":1}}GET ";

    #[test]
    fn a_request_is_read_once_it_is_all_there_and_not_beyond() {
        let end = POST.len() - 5;
        for length in 0..end {
            assert!(
                Request::parse(&POST[..length]).unwrap().is_none(),
                "{length}"
            );
        }
        let request = Request::parse(POST).unwrap().unwrap();
        assert_eq!(request.id, b"e1");
        assert_eq!(request.signature, b"v1,x");
        assert_eq!(request.timestamp, b"7");
        assert_eq!(number(request.body).unwrap(), 42);
        assert_eq!(request.length, end);
    }

    #[test]
    fn a_body_without_a_number_is_refused() {
        assert!(number(b"{}").is_err());
        assert!(number(br#"{"n":x}"#).is_err());
    }
}
