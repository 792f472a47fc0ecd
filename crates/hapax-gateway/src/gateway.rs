//! The gateway: passes a request to the route that matches it, and protects it if the route says so.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use hapax::{
    event::Headers,
    failpoint::Failpoints,
    key::Tenant,
    store::Phases,
    trace::{TRACEPARENT, TraceContext},
};
use hapax_http::{
    Problem, RequestId, Settings,
    header::{IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS, REQUEST_TIMEOUT},
    request_id::REQUEST_ID,
};
use http::{HeaderValue, Method, Request, Version};
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::time::Instant;
use tower_service::Service as _;

use crate::{
    access_log::{self, Line},
    config::{self, KeyRule, RouteProtocol, Underscores},
    entry::Entry,
    guard,
    headers::{Client, outgoing, remove_underscored},
    metrics,
    peer::Peer,
    protected::{Budget, timed},
    state::{SetUpError, State},
    stream::stream,
    tool_call::{self, Caller},
    upgrade::Upgrade,
};

/// The addition of the gateway to `Idempotency-Status`: the effect in the service and the stored response
/// are not one commit.
const OPAQUE: &str = "; upstream=opaque";
/// The path of the sources of webhooks.
const INGEST: &str = "/in/";
/// The event header with the id of the request.
const CORRELATION_ID: &str = "correlation_id";

/// A gateway with its current configuration. Clones share it.
pub struct Gateway<K: Phases>(Arc<Shared<K>>);

struct Shared<K: Phases> {
    store: K,
    base: Settings,
    failpoints: Failpoints,
    state: RwLock<Arc<State<K>>>,
}

impl<K: Phases> Clone for Gateway<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Phases> fmt::Debug for Gateway<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gateway")
    }
}

/// A request on its way through the gateway.
struct Passing<K: Phases> {
    request: Request<Body>,
    entry: Arc<Entry<K>>,
    upgrade: Option<Upgrade>,
    id: RequestId,
    /// The client of a call of a tool that has a key.
    caller: Option<Caller>,
}

impl<K: Phases> Gateway<K> {
    /// Builds a gateway. `base` has the clock, the random numbers and the log of requests; what the
    /// configuration sets replaces the rest. It must be called in a runtime of Tokio.
    ///
    /// # Errors
    /// Fails if the configuration cannot be used: a file or a secret cannot be read.
    pub fn new(
        store: K,
        base: Settings,
        failpoints: Failpoints,
        settings: &config::Settings,
    ) -> Result<Self, SetUpError> {
        let state = State::new(&store, &base, &failpoints, settings, None)?;
        Ok(Self(Arc::new(Shared {
            store,
            base,
            failpoints,
            state: RwLock::new(Arc::new(state)),
        })))
    }

    /// Replaces the configuration, which was checked. Requests in flight end with the old one. Operations
    /// that the new configuration does not have are logged, because their keys are not found any more.
    ///
    /// # Errors
    /// Fails like [`new`](Self::new). The old configuration then stays.
    pub fn reload(&self, settings: &config::Settings) -> Result<(), SetUpError> {
        let Shared {
            store,
            base,
            failpoints,
            ..
        } = &*self.0;
        let earlier = self.state();
        let state = State::new(store, base, failpoints, settings, Some(&earlier))?;
        let state = Arc::new(state);
        let lost: Vec<&str> = earlier
            .operations
            .difference(&state.operations)
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            tracing::warn!(
                operations = lost.join(", "),
                "the new configuration does not have these operations: their keys are not found, and a \
                 retry of a request that has already happened is sent again"
            );
        }
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&state);
        earlier.report_removed(&state);
        Ok(())
    }

    /// The current certificate of a listener.
    pub(crate) fn tls(&self, listener: &str) -> Option<Arc<ServerConfig>> {
        self.state().tls.get(listener).cloned()
    }

    /// The proxies that say who their clients are, if a listener accepts connections from them only.
    pub(crate) fn proxies(&self, listener: &str) -> Option<Arc<[IpNet]>> {
        self.state().proxies.get(listener).cloned()
    }

    /// Handles one request.
    pub async fn handle(&self, request: Request<Body>, peer: &Peer) -> Response {
        let arrived = Instant::now();
        let id = RequestId::sent(request.headers());
        let id = id.unwrap_or_else(|| RequestId::mint(&self.0.base.random));
        let (method, version) = (request.method().clone(), request.version());
        let path = request.uri().path().to_owned();
        let mut host = String::new();
        let (mut response, entry, is_protected) = match self.ingest(request, &id).await {
            Ok(response) => (response, None, false),
            Err(request) => {
                let passing = self.route(request, peer, &id, &mut host);
                pass(passing, arrived).await
            }
        };
        if !response.headers().contains_key(REQUEST_ID)
            && let Ok(id) = HeaderValue::from_str(id.as_str())
        {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let target = entry.as_ref().map(|entry| &entry.target);
        let line = Line {
            peer,
            method: &method,
            host: &host,
            path: &path,
            version,
            route: target.map(|target| target.route.as_str()),
            upstream: target.map(|target| target.upstream.name.as_str()),
            request_id: id.as_str(),
            status: response.status().as_u16(),
            took: arrived.elapsed(),
        };
        access_log::write(&line, response.headers());
        let kind = if is_protected { "protected" } else { "stream" };
        let route = line.route.unwrap_or("none");
        metrics::request(route, kind, line.status, line.took);
        response
    }

    /// Hands the webhook of a provider to its source. Any other request is returned.
    async fn ingest(
        &self,
        request: Request<Body>,
        id: &RequestId,
    ) -> Result<Response, Request<Body>> {
        let source = request.uri().path().strip_prefix(INGEST).map(str::to_owned);
        let (Some(source), Some(ingest)) = (source, self.state().ingest.clone()) else {
            return Err(request);
        };
        let (mut parts, body) = request.into_parts();
        if let Err(problem) = guard::check(&parts) {
            return Ok(problem.into_response());
        }
        let mut context = Headers::from([(CORRELATION_ID.to_owned(), id.as_str().to_owned())]);
        let mut sent = parts.headers.get_all(TRACEPARENT).iter();
        if let (Some(sent), None) = (sent.next(), sent.next())
            && let Some(trace) = sent.to_str().ok().and_then(TraceContext::parse)
        {
            context.insert(TRACEPARENT.to_owned(), trace.to_string());
        }
        parts.extensions.insert(id.clone());
        let request = Request::from_parts(parts, body);
        Ok(Box::pin(ingest.receive(&source, request, context)).await)
    }

    /// Finds the route of a request, and prepares the request for the service.
    fn route(
        &self,
        mut request: Request<Body>,
        peer: &Peer,
        id: &RequestId,
        host: &mut String,
    ) -> Result<Passing<K>, Problem> {
        let (parts, body) = request.into_parts();
        let asked = guard::check(&parts)?;
        let authority = guard::authority(&parts)?;
        *host = asked;
        request = Request::from_parts(parts, body);
        let state = self.state();
        let found = state
            .routes
            .find(host, request.uri().path(), request.method());
        let entry = Arc::clone(found.ok_or_else(Problem::not_found)?);
        let upgrade = Upgrade::of(&mut request);
        let client = Client {
            address: peer.address,
            is_identified: peer.is_identified,
            is_tls: peer.is_tls,
            host: authority.as_ref().map_or("", |it| it.as_str()),
            version: request.version(),
        };
        let protected = &entry.protected_headers;
        if entry.target.settings.underscores == Underscores::Drop {
            remove_underscored(request.headers_mut(), protected);
        }
        outgoing(request.headers_mut(), &client, &state.trusted, protected);
        if let Ok(id) = HeaderValue::from_str(id.as_str()) {
            request.headers_mut().insert(REQUEST_ID, id);
        }
        request.extensions_mut().insert(peer.clone());
        *request.version_mut() = Version::HTTP_11;
        Ok(Passing {
            request,
            entry,
            upgrade,
            id: id.clone(),
            caller: None,
        })
    }

    fn state(&self) -> Arc<State<K>> {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state)
    }
}

/// Passes a request on. Returns the response, the route, and whether the request was protected.
async fn pass<K: Phases>(
    passing: Result<Passing<K>, Problem>,
    arrived: Instant,
) -> (Response, Option<Arc<Entry<K>>>, bool) {
    let passing = match passing {
        Ok(passing) => passing,
        Err(problem) => return (problem.into_response(), None, false),
    };
    let entry = Arc::clone(&passing.entry);
    let is_protected = passing.is_protected();
    let passing = match passing.authenticated().await {
        Ok(passing) => passing,
        Err(problem) => return (problem.into_response(), Some(entry), is_protected),
    };
    let passing = if passing.has_message() {
        match Box::pin(passing.read_call(arrived)).await {
            Ok(passing) => passing,
            Err(response) => return (response, Some(entry), false),
        }
    } else {
        passing
    };
    let is_protected = passing.is_protected();
    let response = if is_protected {
        Box::pin(passing.protected(arrived)).await
    } else {
        Box::pin(passing.streamed()).await
    };
    (response, Some(entry), is_protected)
}

impl<K: Phases> Passing<K> {
    /// Verifies the credential of the request, if its route demands one of every request.
    async fn authenticated(self) -> Result<Self, Problem> {
        if !self.entry.needs_credential {
            return Ok(self);
        }
        let entry = Arc::clone(&self.entry);
        let (mut parts, body) = self.request.into_parts();
        let tenant = entry.tenant.tenant(&parts).await?;
        parts.extensions.insert(tenant);
        Ok(Self {
            request: Request::from_parts(parts, body),
            ..self
        })
    }

    /// Whether the body is a message of MCP.
    fn has_message(&self) -> bool {
        let is_mcp = self.entry.target.settings.protocol == RouteProtocol::Mcp;
        is_mcp && self.request.method() == Method::POST
    }

    /// Reads the message of a request. Returns the response to a message that is not passed on.
    async fn read_call(self, arrived: Instant) -> Result<Self, Response> {
        let entry = Arc::clone(&self.entry);
        let route = &entry.target.settings;
        let end = arrived + route.timeout.0;
        let (request, caller) = tool_call::read(self.request, route, end).await?;
        Ok(Self {
            request,
            caller,
            ..self
        })
    }

    /// Whether the request has a key under which it is protected, or needs one.
    fn is_protected(&self) -> bool {
        if self.entry.target.settings.protocol == RouteProtocol::Mcp {
            return self.caller.is_some();
        }
        let is_method = self.entry.protected_methods.contains(self.request.method());
        let has_key = self.request.headers().contains_key(IDEMPOTENCY_KEY);
        is_method && (has_key || self.entry.key == KeyRule::Required)
    }

    /// Handles a protected request under its key.
    async fn protected(self, arrived: Instant) -> Response {
        let Self {
            request,
            entry,
            id,
            caller,
            ..
        } = self;
        let (mut parts, body) = request.into_parts();
        if !entry.needs_credential {
            match entry.tenant.tenant(&parts).await {
                Ok(tenant) => drop(parts.extensions.insert(tenant)),
                Err(problem) => return problem.into_response(),
            }
        }
        entry.remove_secret(&mut parts.headers);
        parts.extensions.insert(id);
        if let Some(budget) = parts.headers.remove(REQUEST_TIMEOUT) {
            parts.extensions.insert(Budget(budget));
        }
        let body = timed(body, arrived + entry.target.settings.timeout.0);
        let admitted = entry.target.upstream.admit(parts.extensions.get());
        let mut service = entry.protected.clone();
        let request = Request::from_parts(parts, body);
        let responding = async move {
            if let Err(problem) = admitted {
                return problem.into_response();
            }
            let Ok(mut response) = service.call(request).await;
            say_opaque(&mut response);
            response
        };
        match caller {
            None => responding.await,
            Some(caller) => caller.respond(responding).await,
        }
    }

    /// Passes an unprotected request through.
    async fn streamed(self) -> Response {
        let Self {
            mut request,
            entry,
            upgrade,
            ..
        } = self;
        let upstream = &entry.target.upstream;
        let mut tenant = request.extensions().get::<Tenant>().cloned();
        if tenant.is_none() && upstream.counts_tenants() {
            let (parts, body) = request.into_parts();
            tenant = entry.tenant.tenant(&parts).await.ok();
            request = Request::from_parts(parts, body);
        }
        if let Err(problem) = upstream.admit(tenant.as_ref()) {
            return problem.into_response();
        }
        entry.remove_secret(request.headers_mut());
        if let Some(upgrade) = &upgrade {
            upgrade.ask(&mut request);
        }
        let idle_max = entry.target.settings.timeout.0;
        let streamed = stream(upstream, request, upgrade, tenant.as_ref(), idle_max).await;
        streamed.unwrap_or_else(Problem::into_response)
    }
}

/// Says that the effect in the service is not part of the commit that stored the response.
fn say_opaque(response: &mut Response) {
    let Some(status) = response.headers().get(IDEMPOTENCY_STATUS) else {
        return;
    };
    let text = [status.as_bytes(), OPAQUE.as_bytes()].concat();
    if let Ok(status) = HeaderValue::from_bytes(&text) {
        response.headers_mut().insert(IDEMPOTENCY_STATUS, status);
    }
}
