//! Exporter: collects spans, sends them in batches, retries, and drops spans if it must.
//!
//! A collector that cannot be reached is logged once, with the number of lost spans, and once more
//! when it is back.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use hapax::{retry::Delays, telemetry::error_chain};
use http::{HeaderValue, Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    Endpoint, Headers, Spans, encode,
    limits::{
        BATCH_SPANS, BODY_MAX, END_MAX, IDLE, LINGER, QUEUE_SPANS, RESPONSE_BYTES_MAX, RETRIES,
        SEND_MAX, TRIES,
    },
    response,
    span::EndedSpan,
};

/// The media type of a request.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// The settings of the exporter.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector.
    pub endpoint: Endpoint,
    /// The headers of every request.
    pub headers: Headers,
    /// The name of the service (`service.name`).
    pub service: String,
    /// The instance of the service (`service.instance.id`), if known.
    pub instance: Option<String>,
    /// The source of time; a service passes `SystemTime::now`.
    pub now: fn() -> SystemTime,
}

impl Settings {
    /// Settings that export to `endpoint` as `service`.
    pub fn new(endpoint: Endpoint, service: impl Into<String>, now: fn() -> SystemTime) -> Self {
        Self {
            endpoint,
            headers: Headers::default(),
            service: service.into(),
            instance: None,
            now,
        }
    }
}

/// Sends the spans of a [`Spans`] layer, once it is spawned.
pub struct Exporter {
    queue: mpsc::Receiver<EndedSpan>,
    dropped: Arc<AtomicU64>,
    settings: Settings,
    resource: Vec<(&'static str, String)>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    is_failing: bool,
}

/// Why a batch was not accepted.
struct Failure {
    error_chain: String,
    may_pass: bool,
}

impl Exporter {
    /// Creates a layer and its exporter. Spans that end before the exporter is spawned are queued.
    pub fn new(settings: Settings) -> (Spans, Self) {
        let (sender, queue) = mpsc::channel(QUEUE_SPANS);
        let dropped = Arc::new(AtomicU64::new(0));
        let spans = Spans::new(sender, Arc::clone(&dropped), settings.now);
        let mut resource = vec![("service.name", settings.service.clone())];
        if let Some(instance) = &settings.instance {
            resource.push(("service.instance.id", instance.clone()));
        }
        resource.push(("telemetry.sdk.name", "hapax-otlp".to_owned()));
        resource.push(("telemetry.sdk.language", "rust".to_owned()));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        resource.push(("telemetry.sdk.version", version));
        let exporter = Self {
            queue,
            dropped,
            settings,
            resource,
            client: client(),
            is_failing: false,
        };
        (spans, exporter)
    }

    /// Starts sending, on the current runtime.
    pub fn spawn(self) -> Exporting {
        let (stop, stopping) = watch::channel(false);
        let running = tokio::spawn(self.run(stopping));
        Exporting { stop, running }
    }

    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(BATCH_SPANS);
        loop {
            let is_last = self.gather(&mut batch, &mut stopping).await;
            if !batch.is_empty() {
                self.send(&batch).await;
                batch.clear();
            }
            if is_last {
                return;
            }
        }
    }

    /// Waits until a batch is full or old enough. Returns whether it is the last one.
    async fn gather(
        &mut self,
        batch: &mut Vec<EndedSpan>,
        stopping: &mut watch::Receiver<bool>,
    ) -> bool {
        let mut due = pin!(sleep(LINGER));
        while batch.len() < BATCH_SPANS {
            let room = BATCH_SPANS - batch.len();
            tokio::select! {
                biased;
                count = self.queue.recv_many(batch, room) => if count == 0 { return true },
                () = &mut due, if !batch.is_empty() => return false,
                _ = stopping.wait_for(|stop| *stop) => return self.queue.is_empty(),
            }
        }
        false
    }

    async fn send(&mut self, batch: &[EndedSpan]) {
        let body = Bytes::from(encode::request(&self.resource, batch));
        let mut delays = Delays::new(RETRIES);
        for left in (0..TRIES).rev() {
            match self.post(body.clone()).await {
                Ok(0) => return self.arrived(),
                Ok(rejected) => {
                    let error_chain =
                        format!("the collector rejected {rejected} spans of a request");
                    let failure = Failure {
                        error_chain,
                        may_pass: false,
                    };
                    return self.gave_up(&failure, rejected.min(batch.len() as u64));
                }
                Err(failure) if failure.may_pass && left > 0 => {
                    sleep(delays.advance()).await;
                }
                Err(failure) => return self.gave_up(&failure, batch.len() as u64),
            }
        }
    }

    /// Sends one request. Returns the number of spans that the collector rejected.
    async fn post(&self, body: Bytes) -> Result<u64, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.endpoint.traces().clone();
        request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
        request
            .headers_mut()
            .extend(self.settings.headers.map().clone());
        let answer = match timeout(SEND_MAX, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::passing(error_chain(&error))),
            Err(_) => return Err(Failure::passing("no response in time".to_owned())),
        };
        let (status, body) = (answer.status(), answer.into_body());
        // The body is read to its end, so that the connection can be reused. The status alone
        // decides: an incomplete body is not a reason to send the spans again.
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect();
        let said = match timeout(BODY_MAX, body).await {
            Ok(Ok(said)) => said.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        if status.is_success() {
            return Ok(response::rejected(&said));
        }
        Err(Failure {
            error_chain: format!("the collector responded with {status}"),
            may_pass: status == StatusCode::TOO_MANY_REQUESTS
                || matches!(status.as_u16(), 502..=504),
        })
    }

    fn arrived(&mut self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if self.is_failing || dropped > 0 {
            tracing::info!(
                dropped,
                from_state = if self.is_failing {
                    "failing"
                } else {
                    "exporting"
                },
                to_state = "exporting",
                "spans are exported"
            );
        }
        self.is_failing = false;
    }

    fn gave_up(&mut self, failure: &Failure, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
        if !self.is_failing {
            tracing::warn!(
                error = failure.error_chain,
                error_code = "export",
                from_state = "exporting",
                to_state = "failing",
                "spans cannot be exported: they are dropped until the collector accepts them"
            );
        }
        self.is_failing = true;
    }
}

/// A running exporter.
#[derive(Debug)]
pub struct Exporting {
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Exporting {
    /// Sends the remaining spans and ends. It does not wait long for a collector that does not
    /// respond.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        if timeout(END_MAX, &mut self.running).await.is_err() {
            self.running.abort();
        }
    }
}

impl Failure {
    fn passing(error_chain: String) -> Self {
        Self {
            error_chain,
            may_pass: true,
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn client() -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut dial = HttpConnector::new();
    dial.enforce_http(false);
    dial.set_connect_timeout(Some(SEND_MAX / 2));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(dial);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector)
}
