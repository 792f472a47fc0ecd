//! A client with short waits, and a listener that treats each connection as the test says.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    Clock,
    retry::{Backoff, Budget},
};
use hapax_client::{Client, Policy, Request, Settings};
use hapax_testkit::{clock::seeded_random, http::HttpReceiver};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A policy with waits of a few milliseconds and an unlimited budget.
pub(crate) fn quick() -> Policy {
    let backoff = Backoff {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(5),
        ..Backoff::default()
    };
    Policy {
        backoff,
        budget: Budget::unbounded(),
        ..Policy::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests pass the time in")]
pub(crate) fn clock() -> Clock {
    Clock::new(std::time::SystemTime::now)
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new(clock(), seeded_random(42));
    settings.policy = quick();
    settings
}

pub(crate) fn client() -> Client {
    Client::new(settings()).unwrap()
}

pub(crate) fn post(receiver: &HttpReceiver) -> Request {
    Request::post(&receiver.url("/orders"))
        .unwrap()
        .json(r#"{"amount":500}"#)
}

/// What to do with a connection after the head and body of a request were read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// Reset it before a response.
    Reset,
    /// Start a response of 100 bytes and reset the connection after three.
    BreakOff,
    /// Send nothing and keep it open.
    Silence,
    /// Respond with 200.
    Answer,
}

/// A listener that performs one deed per connection, and repeats the last one.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    seen: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Listener {
    pub(crate) async fn start(deeds: &'static [Deed]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let index = count.load(Ordering::SeqCst).min(deeds.len() - 1);
                kept.extend(act(stream, deeds[index], &count).await);
            }
        });
        Self {
            address,
            seen,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    /// The number of requests received.
    pub(crate) fn requests(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn act(mut stream: TcpStream, deed: Deed, count: &AtomicUsize) -> Option<TcpStream> {
    let mut buffer = [0; 4096];
    let mut read = 0;
    while !buffer[..read].ends_with(b"}") {
        match stream.read(&mut buffer[read..]).await {
            Ok(more) if more > 0 => read += more,
            _ => return None,
        }
    }
    count.fetch_add(1, Ordering::SeqCst);
    let answer: &[u8] = match deed {
        Deed::Silence => return Some(stream),
        Deed::Reset => b"",
        Deed::BreakOff => b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"a",
        Deed::Answer => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    };
    stream.write_all(answer).await.unwrap();
    if !matches!(deed, Deed::Answer) {
        stream.set_zero_linger().unwrap();
    }
    None
}
