//! Upgrades of a connection, such as to WebSocket: after `101`, bytes are copied both ways.
//!
//! Only requests of HTTP/1.1 on unprotected routes are upgraded, and only towards an upstream that
//! speaks HTTP/1.1. The connection counts as a request in flight until both sides have closed it.

use axum::body::Body;
use http::{
    HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, UPGRADE},
};
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, on},
};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::{
    headers::{remove_hop_by_hop, upgrade_of},
    upstream::InFlight,
};

const ASKED: HeaderValue = HeaderValue::from_static("upgrade");

/// The client's side of an upgrade.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// Takes the upgrade that a request asks for. Call it before the hop-by-hop headers are
    /// removed.
    pub(crate) fn of(request: &mut Request<Body>) -> Option<Self> {
        if request.version() != Version::HTTP_11 {
            return None;
        }
        let protocol = upgrade_of(request.headers())?;
        // HTTP/2 is not a protocol to which the service could change without the gateway.
        if protocol.as_bytes().to_ascii_lowercase().starts_with(b"h2") {
            return None;
        }
        let client = on(request);
        Some(Self { protocol, client })
    }

    /// Asks the service for the same upgrade. Call it after the hop-by-hop headers are removed.
    pub(crate) fn ask(&self, request: &mut Request<Body>) {
        let headers = request.headers_mut();
        headers.insert(CONNECTION, ASKED);
        headers.insert(UPGRADE, self.protocol.clone());
    }
}

/// Confirms an upgrade that the service has accepted, and copies bytes until both sides are closed.
pub(crate) fn accepted(
    upgrade: Upgrade,
    mut response: Response<Incoming>,
    in_flight: InFlight,
) -> Response<Body> {
    let service = on(&mut response);
    let protocol = response.headers().get(UPGRADE).cloned();
    let mut confirmed = Response::new(Body::empty());
    *confirmed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *confirmed.headers_mut() = std::mem::take(response.headers_mut());
    remove_hop_by_hop(confirmed.headers_mut(), &[]);
    confirmed.headers_mut().insert(CONNECTION, ASKED);
    let protocol = protocol.unwrap_or(upgrade.protocol);
    confirmed.headers_mut().insert(UPGRADE, protocol);
    tokio::spawn(async move {
        if let Err(error) = Box::pin(copy(upgrade.client, service)).await {
            tracing::debug!(error, "an upgraded connection ended early");
        }
        drop(in_flight);
    });
    confirmed
}

async fn copy(client: OnUpgrade, service: OnUpgrade) -> Result<(), String> {
    let (client, service) = tokio::try_join!(client, service).map_err(|error| error.to_string())?;
    let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
    copy_bidirectional(&mut client, &mut service)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}
