//! Redis Streams sink: adds each event as an entry.
//!
//! A batch is one pipeline of `XADD`, each with its own response. Redis does not deduplicate: an
//! event that is delivered again is added again with the same `id`, and the reader's inbox drops
//! it. `Ok` says that Redis has the entry in memory; when it is on disk depends on `appendfsync`.
//!
//! ```
//! use hapax_sinks::redis::{Redis, RedisError};
//!
//! # fn wire() -> Result<Redis, RedisError> {
//! let redis = Redis::to("redis://redis.example.com:6379/0")
//!     .stream("events")
//!     .source("/shop")
//!     .build()?;
//! # Ok(redis)
//! # }
//! ```

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink, SinkError};
use redis::Pipeline;
use tokio::time::{Instant, timeout_at};

use self::{answer::Failure, link::Links};
use crate::{format::Format, limits::REDIS_BATCH, pattern::Pattern};

mod builder;
mod entry;
mod link;
mod answer;

pub use builder::{RedisBuilder, RedisError};

/// A Redis Streams sink.
pub struct Redis {
    links: Links,
    stream: Pattern,
    length_max: Option<u64>,
    format: Format,
    source: String,
    timeout: Duration,
}

impl Redis {
    /// Starts the builder of a sink for the server at `url`.
    pub fn to(url: impl Into<String>) -> RedisBuilder {
        RedisBuilder::new(url.into())
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let mut link = match timeout_at(deadline, self.links.get()).await {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) => return all(offers, &failure),
            Err(_) => return all(offers, &Failure::Silent),
        };
        let mut streams = Vec::with_capacity(offers.len());
        let mut pipeline = Pipeline::with_capacity(offers.len());
        for offer in offers {
            let stream = self.stream.fill(offer.event(), |_, value| value.to_owned());
            let entry = entry::Entry {
                stream: &stream,
                length_max: self.length_max,
                format: self.format,
                source: &self.source,
            };
            pipeline.add_command(entry.add(offer));
            streams.push(stream);
        }
        let adding = link
            .connection
            .send_packed_commands(&pipeline, 0, offers.len());
        let answers = match timeout_at(deadline, adding).await {
            Ok(Ok(answers)) if answers.len() == offers.len() => answers,
            Ok(Ok(_)) => return all(offers, &Failure::Answers),
            Ok(Err(error)) => return all(offers, &error.into()),
            Err(_) => return all(offers, &Failure::Silent),
        };
        // A demoted server keeps its clients, while its name may already lead to another server.
        if !answers.iter().any(answer::is_read_only) {
            link.done();
        }
        let answers = answers.iter().zip(&streams);
        let judged = answers.map(|(answer, stream)| answer::judge(answer, stream));
        let failed = |failure: Failure| {
            if self.stream.is_fixed() {
                SinkError::from(failure)
            } else {
                failure.of_event()
            }
        };
        let outcome = |it: Result<(), Failure>| it.map(|()| Receipt::default()).map_err(failed);
        judged.map(outcome).collect()
    }
}

impl Sink for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            match offers {
                [] => Vec::new(),
                _ => self.offer(offers).await,
            }
        })
    }

    fn batch_max(&self) -> usize {
        REDIS_BATCH
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("server", &self.links)
            .field("stream", &self.stream)
            .field("length_max", &self.length_max)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

fn all(offers: &[Offer], failure: &Failure) -> Vec<Outcome> {
    offers.iter().map(|_| Err(failure.clone().into())).collect()
}
