//! S3 sink: stores batches of events as objects of JSON Lines.
//!
//! Each line is a CloudEvents 1.0 event; readers deduplicate by `id`. The name of an object depends
//! only on its events, so the same batch replaces its object with the same bytes. A batch with other
//! limits is another object, and an event can then be in two of them. Connections outside the public
//! internet are blocked unless they are permitted.
//!
//! ```
//! use hapax::Clock;
//! use hapax_sinks::{
//!     s3::{S3, S3Settings},
//!     settings::{DestinationSettings, SettingError},
//! };
//!
//! # fn wire(clock: Clock) -> Result<S3, SettingError> {
//! let settings = S3Settings {
//!     endpoint: "https://s3.eu-central-1.amazonaws.com".into(),
//!     region: "eu-central-1".into(),
//!     bucket: "shop-events".into(),
//!     access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
//!     secret_access_key: "from-your-secrets".into(),
//!     ..S3Settings::default()
//! };
//! S3::new(&settings, DestinationSettings::new("/shop"), clock)
//! # }
//! ```

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use tokio::time::Instant;

use self::object::Line;
pub use crate::settings::S3Settings;
use crate::{
    api::{Endpoint, Failure, Parts},
    aws::{self, Access, Call, Service, hash},
    format::TextFormat,
    limits::{S3_LINES_MAX, S3_OBJECT_BYTES},
    settings::{DestinationSettings, SettingError},
    webhook::Blocked,
};

mod object;

/// The media type of JSON Lines.
const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Maximum length of a bucket's name in bytes, at Amazon.
const BUCKET_BYTES_MAX: usize = 63;

/// An S3 sink.
pub struct S3 {
    service: Service,
    bucket: String,
    /// The path before the name of an object: the bucket, unless the host name contains it.
    base: String,
    prefix: String,
    format: TextFormat,
    source: String,
    timeout: Duration,
}

impl S3 {
    /// Creates a sink. An address that the guard blocks is accepted: the destination exists, and
    /// each delivery reports why nothing is sent.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(
        settings: &S3Settings,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        check_bucket(&settings.bucket)?;
        let prefix = object::prefix(settings.prefix.as_deref())?;
        let (endpoint, base) = endpoint(settings)?;
        let access = Access {
            region: &settings.region,
            key_id: &settings.access_key_id,
            secret_access_key: &settings.secret_access_key,
            session_token: settings.session_token.as_ref(),
            allow: &settings.allow,
            ca: settings.ca.as_deref(),
        };
        Ok(Self {
            service: Service::new("s3", endpoint, &access, &destination, clock)?,
            bucket: settings.bucket.clone(),
            base,
            prefix,
            format: settings.format,
            source: destination.source,
            timeout: destination.timeout,
        })
    }

    /// Why every delivery will be blocked, if the URL alone determines that.
    ///
    /// A name alone determines nothing: its addresses are checked at every connection.
    pub fn refusal(&self) -> Option<Blocked> {
        self.service.refusal()
    }

    async fn offer(&self, offers: &[Offer]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let lines = offers.iter();
        let lines = lines.map(|offer| Line::of(offer, self.format, &self.source));
        let lines: Vec<Line<'_>> = lines.collect();
        let mut parts = Parts::new(&lines, |it| it.bytes.len(), S3_LINES_MAX, S3_OBJECT_BYTES);
        while let Some(part) = parts.pop() {
            let stored = self.put(part, deadline).await;
            parts.record(part, stored, of_one);
        }
        parts.into_outcomes()
    }

    /// Stores lines as one object.
    async fn put(&self, lines: &[Line<'_>], deadline: Instant) -> Result<Receipt, Failure> {
        let body = object::body(lines);
        let body_hash = hash(&body);
        let name = object::name(&self.prefix, lines, &body_hash);
        let call = Call {
            method: Method::PUT,
            path: format!("{}/{name}", self.base),
            headers: HeaderMap::from_iter([(CONTENT_TYPE, JSON_LINES)]),
            body: Bytes::from(body),
            body_hash,
        };
        let response = self.service.send(call, deadline).await?;
        if response.status.is_success() {
            Ok(response.receipt())
        } else {
            Err(aws::failure(&response))
        }
    }
}

impl Sink for S3 {
    fn kind(&self) -> &'static str {
        "s3"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.offer(offers))
    }

    fn batch_max(&self) -> usize {
        S3_LINES_MAX
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3")
            .field("service", &self.service)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// The outcome of a single event whose object is too large: a proxy in front of the service accepts
/// less than the service itself.
fn of_one(failure: &Failure) -> Option<SinkError> {
    (failure.error_type == "too_large").then(|| failure.declined())
}

/// The endpoint, and the path before the name of an object.
fn endpoint(settings: &S3Settings) -> Result<(Endpoint, String), SettingError> {
    let endpoint = Endpoint::of_service("endpoint", &settings.endpoint)?;
    let bucket = &settings.bucket;
    // A certificate for `*.s3.amazonaws.com` does not cover a name with two more labels.
    let usual = !endpoint.is_amazon() || bucket.contains('.');
    if settings.path_style.unwrap_or(usual) {
        return Ok((endpoint, format!("/{bucket}")));
    }
    if endpoint.is_address() {
        let problem = "must be true, because the host of the endpoint is an address";
        return Err(SettingError::new("path_style", problem));
    }
    Ok((endpoint.under("bucket", bucket)?, String::new()))
}

fn check_bucket(name: &str) -> Result<(), SettingError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let begins = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_valid = name.len() <= BUCKET_BYTES_MAX
        && name.as_bytes().first().is_some_and(begins)
        && name.bytes().all(plain);
    if is_valid {
        return Ok(());
    }
    let problem = format!(
        "must be 1 to {BUCKET_BYTES_MAX} characters of A-Z a-z 0-9 . _ - that begin with a letter or \
         a digit"
    );
    Err(SettingError::new("bucket", problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock;

    #[test]
    fn what_can_never_work_is_refused_by_name() {
        for url in [
            "",
            "s3.example.com",
            "ftp://h",
            "https://u:p@h",
            "https://h/path",
            "https://h/?a",
        ] {
            check("endpoint", |it| it.endpoint = url.to_owned());
        }
        for bucket in ["", "a/b", "..", ".a", "a b", "é", &"x".repeat(64)] {
            check("bucket", |it| it.bucket = bucket.to_owned());
        }
        check("prefix", |it| it.prefix = Some("/a".to_owned()));
        check("region", |it| it.region = String::new());
        check("access_key_id", |it| it.access_key_id = String::new());
        check("secret_access_key", |it| it.secret_access_key = "".into());
        check("session_token", |it| it.session_token = Some("a b".into()));
        check("ca", |it| it.ca = Some("src/lib.rs".into()));
        check("path_style", |it| {
            it.endpoint = "http://127.0.0.1:9000".to_owned();
            it.path_style = Some(false);
        });
    }

    #[test]
    fn the_bucket_is_in_the_host_name_at_amazon_and_in_the_path_elsewhere() {
        let of = |url: &str, bucket: &str, path_style| {
            let mut settings = settings();
            url.clone_into(&mut settings.endpoint);
            bucket.clone_into(&mut settings.bucket);
            settings.path_style = path_style;
            let (endpoint, base) = endpoint(&settings).unwrap();
            (endpoint.origin(), base)
        };
        let expected = |origin: &str, base: &str| (origin.to_owned(), base.to_owned());
        let amazon = "https://s3.eu-central-1.amazonaws.com";
        assert_eq!(
            of(amazon, "logs", None),
            expected("https://logs.s3.eu-central-1.amazonaws.com", "")
        );
        assert_eq!(of(amazon, "lo.gs", None), expected(amazon, "/lo.gs"));
        assert_eq!(of(amazon, "logs", Some(true)), expected(amazon, "/logs"));
        let other = "https://minio.example.com:9000";
        assert_eq!(of(other, "logs", None), expected(other, "/logs"));
        assert_eq!(
            of(other, "logs", Some(false)),
            expected("https://logs.minio.example.com:9000", "")
        );
    }

    #[test]
    fn an_address_outside_the_public_internet_is_blocked_unless_it_is_permitted() {
        let blocked = |endpoint: &str, allow: &[&str]| {
            let mut settings = settings();
            endpoint.clone_into(&mut settings.endpoint);
            settings.allow = allow.iter().map(|net| net.parse().unwrap()).collect();
            sink(&settings).unwrap().refusal().is_some()
        };
        assert!(blocked("https://10.0.0.1", &[]));
        assert!(!blocked("https://10.0.0.1", &["10.0.0.0/8"]));
        assert!(!blocked("http://10.0.0.1", &["10.0.0.0/8"]));
        assert!(!blocked("https://8.8.8.8", &[]));
        // Without TLS, events would be readable on the way.
        assert!(blocked("http://8.8.8.8", &[]));
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = S3Settings {
            secret_access_key: "hunter2".into(),
            session_token: Some("hunter2".into()),
            ..settings()
        };
        let text = format!("{settings:?} {:?}", sink(&settings).unwrap());
        assert!(!text.contains("hunter2"), "{text}");
    }

    fn settings() -> S3Settings {
        S3Settings {
            endpoint: "https://s3.example.com".to_owned(),
            region: "eu-central-1".to_owned(),
            bucket: "logs".to_owned(),
            access_key_id: "key".to_owned(),
            secret_access_key: "secret".into(),
            ..S3Settings::default()
        }
    }

    fn sink(settings: &S3Settings) -> Result<S3, SettingError> {
        S3::new(settings, DestinationSettings::default(), clock())
    }

    #[track_caller]
    fn check(setting: &str, change: impl FnOnce(&mut S3Settings)) {
        let mut settings = settings();
        change(&mut settings);
        assert_eq!(sink(&settings).unwrap_err().setting, setting);
    }
}
