//! The NATS connection that the batches of one destination share.
//!
//! The connection is discarded as soon as it is lost: a message that is queued in a dead connection
//! would be sent later, when the relay already delivers it again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, client::RequestErrorKind};
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{NatsSettings, outcome::Failure};
use crate::{
    connection::Connection,
    limits::{CONNECT, NATS_ASK, NATS_BATCH, NATS_PING},
    resolve::{Resolver, any_of},
    settings::{SettingError, reveal},
    tls,
};

/// The servers and the login.
pub(super) struct Server {
    servers: Vec<ServerAddr>,
    login: Login,
    tls: ClientConfig,
    resolver: Resolver,
}

enum Login {
    Nobody,
    User(String, SecretString),
    Token(SecretString),
}

impl Server {
    pub(super) fn new(settings: &NatsSettings, resolver: Resolver) -> Result<Self, SettingError> {
        let one = |text: &str| {
            let server: Option<ServerAddr> = text.trim().parse().ok();
            server.filter(|it| matches!(it.scheme(), "nats" | "tls") && !it.host().is_empty())
        };
        let url = reveal("url", &settings.url)?;
        let servers: Option<Vec<_>> = url.expose_secret().split(',').map(one).collect();
        let problem = "is not a url with a host that begins with nats:// or tls://";
        Ok(Self {
            servers: servers.ok_or_else(|| SettingError::new("url", problem))?,
            login: Login::new(settings)?,
            tls: tls::read(settings.ca.as_deref())?.0,
            resolver,
        })
    }

    /// The servers whose names can be resolved. The driver would look them up on a shared thread
    /// and block it.
    async fn resolve(&self) -> Result<Vec<ServerAddr>, Failure> {
        let hosts: Vec<_> = self.servers.iter().map(ServerAddr::host).collect();
        let found = any_of(&self.resolver, &hosts).await;
        let found = found.map_err(Failure::Resolve)?;
        Ok(found
            .into_iter()
            .map(|it| self.servers[it].clone())
            .collect())
    }

    pub(super) async fn connect(&self) -> Result<Link, Failure> {
        let servers = self.resolve().await?;
        let (fate, seen) = watch::channel(Fate::default());
        let fate = Arc::new(fate);
        let theirs = Arc::clone(&fate);
        let options = ConnectOptions::new()
            .name(concat!("hapax/", env!("CARGO_PKG_VERSION")))
            .connection_timeout(CONNECT)
            .ping_interval(NATS_PING)
            .client_capacity(NATS_BATCH)
            .subscription_capacity(2 * NATS_BATCH)
            .tls_client_config(self.tls.clone())
            // The next batch opens a new connection and reports why it cannot.
            .max_reconnects(self.servers.len())
            .reconnect_delay_callback(|_| Duration::ZERO)
            .ignore_discovered_servers()
            .event_callback(move |event| {
                theirs.send_modify(|fate| fate.note(event));
                std::future::ready(())
            });
        let options = match &self.login {
            Login::Nobody => options,
            Login::User(user, password) => {
                options.user_and_password(user.clone(), password.expose_secret().to_owned())
            }
            Login::Token(token) => options.token(token.expose_secret().to_owned()),
        };
        let connected = options.connect(servers.as_slice()).await;
        let client = connected.map_err(|error| Failure::Connect(Arc::new(error)))?;
        Ok(Link {
            client,
            fate,
            seen,
            answers_no_questions: AtomicBool::new(false),
        })
    }
}

impl Login {
    fn new(settings: &NatsSettings) -> Result<Self, SettingError> {
        let user = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => Self::User(user.clone(), reveal("password", password)?),
            (None, None) => Self::Nobody,
            _ => return Err(SettingError::new("user", "requires password")),
        };
        match &settings.token {
            Some(token) => Ok(Self::Token(reveal("token", token)?)),
            None => Ok(user),
        }
    }
}

impl fmt::Debug for Server {
    /// Prints only the hosts: an address may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.servers.iter().map(|it| (it.host(), it.port()));
        f.debug_list().entries(hosts).finish()
    }
}

/// One connection.
pub(super) struct Link {
    pub(super) client: Client,
    fate: Arc<watch::Sender<Fate>>,
    seen: watch::Receiver<Fate>,
    /// Whether a request about streams got no response, because the user is not allowed to send it.
    answers_no_questions: AtomicBool,
}

/// The subject of the request for the streams that list a subject.
const NAMES: &str = "$JS.API.STREAM.NAMES";

/// The streams that list a subject.
#[derive(serde::Deserialize)]
struct Streams {
    streams: Option<Vec<serde::de::IgnoredAny>>,
    error: Option<serde::de::IgnoredAny>,
}

/// The state of a connection.
#[derive(Debug, Default)]
struct Fate {
    ended: bool,
    said: Option<Arc<str>>,
}

impl Link {
    /// Returns when the connection is lost.
    pub(super) async fn lost(&self) {
        let mut seen = self.seen.clone();
        // The sender lives as long as `self`.
        let _ended = seen.wait_for(|fate| fate.ended).await;
    }

    /// Why a subject has no listeners although a stream lists it. `None` if no stream lists it or
    /// if that is unknown.
    pub(super) async fn why_away(&self, subject: &str, deadline: Instant) -> Option<&'static str> {
        if self.answers_no_questions.load(Ordering::Relaxed) {
            return None;
        }
        let question = serde_json::json!({ "subject": subject }).to_string();
        let asking = self.client.request(NAMES, question.into());
        let until = deadline.min(Instant::now() + NATS_ASK);
        match timeout_at(until, asking).await {
            Ok(Ok(answer)) => {
                let listed: Streams = serde_json::from_slice(&answer.payload).ok()?;
                if listed.error.is_some() {
                    return Some(
                        "JetStream is not available, for example because its cluster has no leader",
                    );
                }
                let is_listed = listed.streams.is_some_and(|streams| !streams.is_empty());
                is_listed.then_some("the stream that lists it has no leader")
            }
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                Some("JetStream does not respond")
            }
            Ok(Err(_)) | Err(_) if self.said().is_some_and(|words| forbids(&words, NAMES)) => {
                self.answers_no_questions.store(true, Ordering::Relaxed);
                None
            }
            // A user who is allowed to send the request receives a response, unless JetStream is
            // unavailable.
            Ok(Err(_)) | Err(_) => {
                Some("JetStream does not respond, for example because its cluster has no leader")
            }
        }
    }

    /// The last error that the server reported.
    pub(super) fn said(&self) -> Option<Arc<str>> {
        self.seen.borrow().said.clone()
    }
}

impl Connection for Link {
    fn is_alive(&self) -> bool {
        !self.seen.borrow().ended
    }

    fn discard(&self) {
        self.fate.send_modify(|fate| fate.ended = true);
    }
}

impl Fate {
    fn note(&mut self, event: Event) {
        match event {
            Event::Disconnected | Event::Closed => self.ended = true,
            Event::ServerError(error) => self.said = Some(error.to_string().into()),
            _ => {}
        }
    }
}

/// Whether the server reported that publishing to a subject is forbidden.
pub(super) fn forbids(words: &str, subject: &str) -> bool {
    let words = words.to_ascii_lowercase();
    let named = format!("publish to \"{}\"", subject.to_ascii_lowercase());
    words.contains("permissions violation") && words.contains(&named)
}
