//! A document that is read over HTTP, such as the key set of an issuer of tokens.
//!
//! It is read by GET, through the guard and with the client of webhooks: no redirects, no proxies,
//! and connections only to the public internet and to permitted networks. A URL without TLS may
//! only lead to permitted networks outside the public internet, because an attacker on the way
//! could replace the document. The size and the time are bounded.

use std::{error::Error, fmt, path::Path, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::client::legacy;
use ipnet::IpNet;
use tokio::time::timeout;

use super::{SENDER, address, client, confidential, connect::Dial, guard::Blocked};
use crate::{resolve::Resolver, settings::SettingError, tls};

/// Settings of a document.
#[derive(Debug)]
pub struct DocumentSettings<'a> {
    /// The URL. It must not contain a user or a password.
    pub url: &'a str,
    /// Networks outside the public internet that the URL may lead to.
    pub allow: Vec<IpNet>,
    /// A file of certificates (PEM or DER) that are trusted in addition to the public ones.
    pub ca: Option<&'a Path>,
    /// How long a read may take, from the DNS lookup to the end of the body.
    pub timeout: Duration,
    /// Maximum size of the document in bytes.
    pub bytes_max: usize,
    /// Resolver of host names.
    pub resolver: Resolver,
}

/// A document that can be read again and again.
pub struct Document {
    url: Uri,
    refusal: Option<Blocked>,
    client: client::HttpClient,
    timeout: Duration,
    bytes_max: usize,
}

/// Why a document was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The guard blocks the address.
    #[error("connection is not allowed")]
    Blocked(#[source] Blocked),
    /// There was no response.
    #[error("no response")]
    Exchange(#[source] legacy::Error),
    /// The response has another status than 200.
    #[error("expected the status 200, got {0}")]
    Status(StatusCode),
    /// The body is too large.
    #[error("document is larger than {0} bytes")]
    TooLarge(usize),
    /// The body is incomplete.
    #[error("document is incomplete")]
    Incomplete(#[source] Box<dyn Error + Send + Sync>),
    /// The time is up.
    #[error("read has taken too long")]
    Timeout,
}

impl Document {
    /// Creates a document. An address that the guard blocks is accepted, and every read reports it.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(settings: DocumentSettings<'_>) -> Result<Self, SettingError> {
        let (url, host, port) = address(settings.url)?;
        let (tls, _) = tls::read(settings.ca)?;
        let guard = confidential(&url, settings.allow);
        let dial = Dial::new(host, port, guard, settings.resolver);
        Ok(Self {
            refusal: dial.refusal(),
            client: client::new(dial, tls, settings.timeout),
            url,
            timeout: settings.timeout,
            bytes_max: settings.bytes_max,
        })
    }

    /// Reads the document.
    ///
    /// # Errors
    /// Fails if there is no complete response with the status 200 in time, or if it is too large.
    pub async fn get(&self) -> Result<Bytes, DocumentError> {
        if let Some(blocked) = &self.refusal {
            return Err(DocumentError::Blocked(blocked.clone()));
        }
        let read = Box::pin(self.read());
        timeout(self.timeout, read)
            .await
            .unwrap_or(Err(DocumentError::Timeout))
    }

    async fn read(&self) -> Result<Bytes, DocumentError> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, SENDER);
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, */*;q=0.1"),
        );
        let response = self.client.request(request).await;
        let response = response.map_err(DocumentError::Exchange)?;
        if response.status() != StatusCode::OK {
            return Err(DocumentError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), self.bytes_max).collect();
        match body.await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(DocumentError::TooLarge(self.bytes_max))
            }
            Err(error) => Err(DocumentError::Incomplete(error)),
        }
    }
}

impl fmt::Debug for Document {
    /// Prints only the host, because paths and queries contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("host", &self.url.host())
            .finish_non_exhaustive()
    }
}
