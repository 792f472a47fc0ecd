//! Connection to an `https` URL without a request, for a check of a configuration.
//!
//! It is opened as a sink opens it: through the guard, and with the same trusted certificates. No
//! event, header or secret is sent.

use std::{future::poll_fn, path::Path, time::Duration};

use hapax::sink::BoxError;
use ipnet::IpNet;
use tower_service::Service as _;

use super::{address, client, connect::Dial, guard::Guard};
use crate::{resolve::Resolver, tls};

/// Opens a connection to the host of a URL that begins with `https://`, including TLS, and closes
/// it. The networks in `allow` and the certificates in the file `ca` are those of the sink.
///
/// # Errors
/// Fails if a setting is not valid, or if there is no connection within the timeout.
pub async fn handshake(
    url: &str,
    allow: &[IpNet],
    ca: Option<&Path>,
    timeout: Duration,
) -> Result<(), BoxError> {
    let (url, host, port) = address(url)?;
    let (tls, _) = tls::read(ca)?;
    let guard = Guard::allowing(allow.to_vec());
    let dial = Dial::new(host, port, guard, Resolver::system());
    let mut connector = client::connector(dial, tls, timeout);
    poll_fn(|context| connector.poll_ready(context)).await?;
    match connector.call(url).await {
        Ok(_) => Ok(()),
        Err(error) if client::is_without_tls(&*error) => Err(client::ExchangeError::NotTls.into()),
        Err(error) => Err(error),
    }
}
