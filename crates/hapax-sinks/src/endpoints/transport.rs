//! Requests to endpoints of tenants: one HTTP client for each endpoint in use.
//!
//! A client is built from the endpoint, whose secrets are decrypted then, and is kept while it is
//! used. All clients share the trusted certificates and the TLS sessions. Addresses outside the public
//! internet are blocked unless the settings permit them.

use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    Clock,
    endpoint::{BUSY, Endpoint, Exchange, RequestExcerpt, Transport},
    limits::{ENDPOINT_CLIENT_IDLE, ENDPOINT_CLIENTS},
    mask::Mask,
    sink::{Offer, SinkError},
};
use ipnet::IpNet;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::{Keys, previous::PreviousSecrets};
use crate::{
    secret::Secret,
    settings::{DestinationSettings, JsonSetting, SettingError},
    webhook::{SharedTls, Webhook, WebhookSettings},
};

/// The names under which the secrets of an endpoint are encrypted. Those of headers have a prefix.
pub(super) const SECRET: &str = "secret";
pub(super) const HEADER: &str = "headers.";

/// Settings of the requests to all endpoints.
#[derive(Clone, Debug, Default)]
pub struct TransportSettings {
    /// Networks outside the public internet that endpoints may be in.
    pub allow: Vec<IpNet>,
    /// Timeout of a request.
    pub timeout: Duration,
    /// A file of certificate authorities, in addition to the public ones.
    pub ca: Option<PathBuf>,
    /// The beginning of the links of thin payloads; without it, no endpoint can be thin.
    pub events_url: Option<String>,
    /// The values that are masked in the excerpt of a body which a mapping has made.
    pub mask: Mask,
}

/// Sends requests to endpoints.
pub struct EndpointTransport {
    keys: Keys,
    allow: Vec<IpNet>,
    timeout: Duration,
    /// The beginning of the links of thin payloads.
    events_url: Option<String>,
    mask: Mask,
    clock: Clock,
    tls: SharedTls,
    clients: Mutex<HashMap<String, Client>>,
}

/// The client of one version of an endpoint. A database that was set back draws the same version again,
/// so a client has the URL and the secrets of its endpoint too.
struct Client {
    version: i64,
    url: String,
    sealed: Option<Vec<u8>>,
    webhook: Arc<Webhook>,
    used_at: Instant,
}

impl EndpointTransport {
    /// Creates a transport that decrypts the secrets of endpoints with `keys`.
    ///
    /// # Errors
    /// Fails if the file of certificate authorities cannot be read.
    pub fn new(
        settings: &TransportSettings,
        keys: Keys,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        Ok(Self {
            keys,
            allow: settings.allow.clone(),
            timeout: settings.timeout,
            events_url: settings.events_url.clone(),
            mask: settings.mask.clone(),
            clock,
            tls: SharedTls::new(settings.ca.as_deref())?,
            clients: Mutex::default(),
        })
    }

    /// Builds the client of an endpoint, without a connection.
    ///
    /// # Errors
    /// Fails if a setting or a secret of the endpoint is not valid.
    pub fn build(&self, endpoint: &Endpoint) -> Result<Webhook, SettingError> {
        let settings = self.settings(endpoint)?;
        let destination = DestinationSettings {
            timeout: self.timeout,
            ..DestinationSettings::default()
        };
        Webhook::sharing(&settings, destination, self.clock.clone(), &self.tls)
    }

    fn settings(&self, endpoint: &Endpoint) -> Result<WebhookSettings, SettingError> {
        let name = secrets_name(endpoint.tenant.as_str(), &endpoint.id);
        let secrets = self.keys.open(&name, endpoint.sealed.as_deref());
        let secrets = secrets.map_err(|problem| SettingError::new("secrets", problem))?;
        let mapping = endpoint.mapping.as_ref();
        let mut settings = WebhookSettings {
            url: endpoint.url.clone(),
            allow: self.allow.clone(),
            payload: endpoint.payload,
            mapping: mapping.map(|it| JsonSetting::Text(it.as_str().to_owned())),
            events_url: self.events_url.clone(),
            ..WebhookSettings::default()
        };
        for (path, secret) in &secrets {
            let secret = Secret::from(secret.expose_secret());
            if path == SECRET {
                settings.secret = secret;
            } else if let Some(header) = path.strip_prefix(HEADER) {
                settings.headers.insert(header.to_owned(), secret);
            }
        }
        let previous = PreviousSecrets::read(&secrets, endpoint.previous_until).into_iter();
        let previous = previous.map(|(until, it)| (Secret::Text(it), until));
        settings.further_previous = previous.collect();
        Ok(settings)
    }

    /// The client of an endpoint, which is built if there is none of this version.
    fn client(&self, endpoint: &Endpoint) -> Result<Arc<Webhook>, SettingError> {
        let now = Instant::now();
        if let Some(client) = self.clients().get_mut(&endpoint.id)
            && client.is_of(endpoint)
        {
            client.used_at = now;
            return Ok(Arc::clone(&client.webhook));
        }
        let webhook = Arc::new(self.build(endpoint)?);
        let mut clients = self.clients();
        if clients.len() >= ENDPOINT_CLIENTS {
            close_oldest(&mut clients);
        }
        let client = Client {
            version: endpoint.version,
            url: endpoint.url.clone(),
            sealed: endpoint.sealed.clone(),
            webhook: Arc::clone(&webhook),
            used_at: now,
        };
        clients.insert(endpoint.id.clone(), client);
        Ok(webhook)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<String, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    fn is_of(&self, endpoint: &Endpoint) -> bool {
        let is_same_version = self.version == endpoint.version;
        is_same_version && self.url == endpoint.url && self.sealed == endpoint.sealed
    }
}

/// The name to which the secrets of an endpoint are bound. No destination has a name with a space.
pub(super) fn secrets_name(tenant: &str, id: &str) -> String {
    format!("endpoint {id} of {tenant}")
}

/// Removes the client that was not used for the longest time.
fn close_oldest(clients: &mut HashMap<String, Client>) {
    let oldest = clients.iter().min_by_key(|(_, client)| client.used_at);
    if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
        clients.remove(&oldest);
    }
}

impl Transport for EndpointTransport {
    fn send<'a>(&'a self, endpoint: &'a Endpoint, offer: &'a Offer) -> BoxFuture<'a, Exchange> {
        Box::pin(async move {
            match self.client(endpoint) {
                Ok(webhook) => {
                    let (outcome, sent) = webhook.deliver_masked(offer, &self.mask).await;
                    // The endpoint is not to blame if there was no thread for its mapping.
                    let is_busy = matches!(&outcome, Err(error) if error.error_type() == BUSY);
                    Exchange {
                        outcome,
                        is_made: !is_busy,
                        request: RequestExcerpt::new(sent.headers, &sent.body),
                        prepared_in: sent.prepared_in,
                    }
                }
                // The keys may be completed, and the endpoint changed.
                Err(error) => Exchange {
                    outcome: Err(SinkError::unavailable("settings", error)),
                    is_made: false,
                    request: RequestExcerpt::default(),
                    prepared_in: Duration::ZERO,
                },
            }
        })
    }

    fn sweep(&self) {
        let now = Instant::now();
        let is_used = |client: &Client| now.duration_since(client.used_at) < ENDPOINT_CLIENT_IDLE;
        self.clients().retain(|_, client| is_used(client));
    }
}

impl fmt::Debug for EndpointTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointTransport")
            .field("allow", &self.allow)
            .finish_non_exhaustive()
    }
}
