//! Redis Streams sink: adds each event as an entry.
//!
//! A batch is one pipeline of `XADD`, each with its own response. Redis does not deduplicate: an
//! event that is delivered again is added again with the same `id`, and the reader's inbox drops
//! it. `Ok` says that Redis has the entry in memory; when it is on disk depends on `appendfsync`.
//!
//! ```
//! use hapax_sinks::{
//!     redis::{Redis, RedisSettings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire() -> Result<Redis, SettingError> {
//! let settings = RedisSettings {
//!     url: "redis://redis.example.com:6379/0".into(),
//!     stream: Some("events".into()),
//!     ..RedisSettings::default()
//! };
//! Redis::new(&settings, DestinationSettings::new("/shop"))
//! # }
//! ```

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink, SinkError};
use redis::Pipeline;
use tokio::time::{Instant, timeout_at};

use self::{
    link::{Link, Server},
    outcome::Failure,
};
pub use crate::settings::RedisSettings;
use crate::{
    connection::{Current, Use},
    format::Format,
    limits::{REDIS_BATCH, STREAM_NAME_BYTES_MAX},
    pattern::Pattern,
    settings::{DestinationSettings, SettingError},
};

mod entry;
mod link;
mod outcome;

/// A Redis Streams sink.
pub struct Redis {
    server: Server,
    link: Current<Link>,
    stream: Pattern,
    length_max: Option<u64>,
    format: Format,
    source: String,
    timeout: Duration,
}

impl Redis {
    /// Creates a sink. It connects when it has something to deliver.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &RedisSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let server = Server::new(settings, destination.resolver)?;
        let stream = settings.stream.as_deref().unwrap_or("events");
        let stream = Pattern::of_setting("stream", stream)?;
        if stream.sample().len() > STREAM_NAME_BYTES_MAX {
            return Err(SettingError::new("stream", "is too long"));
        }
        if settings.length_max == Some(0) {
            return Err(SettingError::new("length_max", "must be at least 1"));
        }
        Ok(Self {
            server,
            link: Current::default(),
            stream,
            length_max: settings.length_max,
            format: settings.format,
            source: destination.source,
            timeout: destination.timeout,
        })
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let used = match timeout_at(deadline, self.link.get(self.server.connect())).await {
            Ok(Ok(link)) => Use::of(link),
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
        let mut connection = used.connection.connection.clone();
        let adding = connection.send_packed_commands(&pipeline, 0, offers.len());
        let answers = match timeout_at(deadline, adding).await {
            Ok(Ok(answers)) if answers.len() == offers.len() => answers,
            Ok(Ok(_)) => return all(offers, &Failure::Answers),
            Ok(Err(error)) => return all(offers, &error.into()),
            Err(_) => return all(offers, &Failure::Silent),
        };
        // A demoted server keeps its clients, while its name may already lead to another server.
        if !answers.iter().any(outcome::is_read_only) {
            used.keep();
        }
        let answers = answers.iter().zip(&streams);
        let outcomes = answers.map(|(answer, stream)| outcome::outcome_of(answer, stream));
        let failed = |failure: Failure| {
            if self.stream.is_fixed() {
                SinkError::from(failure)
            } else {
                failure.of_event()
            }
        };
        let outcome = |it: Result<(), Failure>| it.map(|()| Receipt::default()).map_err(failed);
        outcomes.map(outcome).collect()
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
            .field("server", &self.server)
            .field("stream", &self.stream)
            .field("length_max", &self.length_max)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

fn all(offers: &[Offer], failure: &Failure) -> Vec<Outcome> {
    offers.iter().map(|_| Err(failure.clone().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "tests/it/tls/ca.pem";

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in [
            "",
            "redis",
            "http://h",
            "redis://h:99999",
            "valkeys://h",
            "rediss://h/#insecure",
        ] {
            check("url", url, |_| {});
        }
        for stream in ["", "{kind}", &"x".repeat(2000)] {
            check("stream", "redis://h", |it| {
                it.stream = Some(stream.to_owned());
            });
        }
        check("length_max", "redis://h", |it| it.length_max = Some(0));
        check("ca", "rediss://h", |it| it.ca = Some("src/lib.rs".into()));
        for url in ["redis://h", "unix:///run/redis.sock"] {
            check("ca", url, |it| it.ca = Some(CA.into()));
        }
        let mut trusting = at("rediss://h");
        trusting.ca = Some(CA.into());
        assert!(sink(&trusting).is_ok());
        assert!(sink(&at("redis://h/3")).is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let settings = at("redis://shop:secret@h/1");
        let text = format!("{settings:?} {:?}", sink(&settings).unwrap());
        assert!(!text.contains("secret"), "{text}");
    }

    fn at(url: &str) -> RedisSettings {
        RedisSettings {
            url: url.into(),
            ..RedisSettings::default()
        }
    }

    fn sink(settings: &RedisSettings) -> Result<Redis, SettingError> {
        Redis::new(settings, DestinationSettings::default())
    }

    #[track_caller]
    fn check(setting: &str, url: &str, change: impl FnOnce(&mut RedisSettings)) {
        let mut settings = at(url);
        change(&mut settings);
        assert_eq!(sink(&settings).unwrap_err().setting, setting, "{url}");
    }
}
