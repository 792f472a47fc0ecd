//! A sink for a protocol of your own: each event is a frame over TCP, and the receiver responds with
//! a line.
//!
//! The frame is `ID LENGTH\n` and the bytes of the payload. The response is `ok`, `later REASON`,
//! `never REASON` or `gone REASON`. The guide "Write a sink" explains this file.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    limits::RESPONSE_HEAD_BYTES,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

/// Delivers events to a receiver of frames.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The receiver, as `HOST:PORT`.
    pub address: String,
    /// Time limit of one delivery, including the connection.
    pub timeout: Duration,
}

impl Sink for Frames {
    fn kind(&self) -> &'static str {
        "frames"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(offers.len());
            for offer in offers {
                outcomes.push(self.deliver_one(offer).await);
            }
            outcomes
        })
    }
}

impl Frames {
    async fn deliver_one(&self, offer: &Offer) -> Outcome {
        match timeout(self.timeout, self.exchange(offer)).await {
            Ok(Ok(response)) => outcome(&response),
            // Nothing is known about the event: the receiver may have it. The relay offers it again
            // under the same id.
            Ok(Err(error)) => Err(SinkError::unavailable("io", error)),
            Err(elapsed) => Err(SinkError::unavailable("timeout", elapsed)),
        }
    }

    /// Sends one event and reads the response, of which at most `RESPONSE_HEAD_BYTES` are kept.
    async fn exchange(&self, offer: &Offer) -> std::io::Result<String> {
        let (event, mut stream) = (offer.event(), TcpStream::connect(&self.address).await?);
        let payload = event.payload.bytes();
        let head = format!("{} {}\n", event.id, payload.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(payload).await?;
        let mut response = Vec::new();
        let mut lines = BufReader::new(stream.take(RESPONSE_HEAD_BYTES as u64));
        lines.read_until(b'\n', &mut response).await?;
        Ok(String::from_utf8_lossy(&response).trim_end().to_owned())
    }
}

/// Says what the relay is to do: nothing more, try again, give this event up, or stop.
fn outcome(response: &str) -> Outcome {
    let (word, reason) = response.split_once(' ').unwrap_or((response, ""));
    let receipt = Receipt {
        status: None,
        head: Bytes::copy_from_slice(response.as_bytes()),
    };
    let source = reason.to_owned().into();
    match word {
        "ok" => Ok(receipt),
        "never" => Err(SinkError::Rejected {
            error_type: "refused",
            receipt,
            source,
        }),
        "gone" => Err(SinkError::Gone { receipt, source }),
        // An empty response is a connection that was closed: nothing is known.
        _ => Err(SinkError::Unavailable {
            retry_after: None,
            error_type: "response",
            receipt,
            source,
        }),
    }
}
