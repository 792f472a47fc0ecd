//! Requests to the APIs of AWS, and of services with the same APIs.
//!
//! Each request is signed with the time at which it is sent. The region and the key are checked when
//! a sink is created; whether the service knows the key is reported by each delivery.

use std::{collections::BTreeMap, fmt, path::Path};

use bytes::Bytes;
use hapax::Clock;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header::AUTHORIZATION};
use http_body_util::Full;
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use self::signature::{Signable, Signer};
use crate::{
    api::{Api, Endpoint, Failure, Response, visible},
    secret::Secret,
    settings::{DestinationSettings, SettingError, reveal},
    webhook::Blocked,
};

mod signature;
mod response;
#[cfg(any(feature = "sqs", feature = "sns"))]
pub(crate) mod messages;

#[cfg(any(feature = "sqs", feature = "sns"))]
pub(crate) use response::error_type;
pub(crate) use response::failure;
#[cfg(feature = "sns")]
pub(crate) use response::{code, refused};
pub(crate) use signature::hash;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const BODY_HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Maximum length of a region or of an access key id in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The characters that separate the parts of the header `authorization`.
const SEPARATORS: &[u8] = b",/=";

/// The settings of the access to a service, which the sinks have in common.
pub(crate) struct Access<'a> {
    pub(crate) region: &'a str,
    pub(crate) key_id: &'a str,
    pub(crate) secret_access_key: &'a Secret,
    pub(crate) session_token: Option<&'a Secret>,
    pub(crate) allow: &'a [IpNet],
    pub(crate) ca: Option<&'a Path>,
}

/// An API that signed requests are sent to.
pub(crate) struct Service {
    api: Api,
    signer: Signer,
    session_token: Option<SessionToken>,
}

struct SessionToken {
    text: SecretString,
    header: HeaderValue,
}

/// A request.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path, percent-encoded.
    pub(crate) path: String,
    /// Further headers, of visible ASCII. All of them are signed.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The [`hash`] of the body.
    pub(crate) body_hash: String,
}

impl Service {
    /// Creates the API `name` at this endpoint. No connection is opened.
    pub(crate) fn new(
        name: &'static str,
        endpoint: Endpoint,
        access: &Access<'_>,
        destination: &DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        let signer = signer(name, access)?;
        let session_token = access.session_token.map(SessionToken::new).transpose()?;
        Ok(Self {
            api: Api::new(endpoint, access.allow, access.ca, destination, clock)?,
            signer,
            session_token,
        })
    }

    /// Why the guard blocks the endpoint, if the URL alone determines that.
    pub(crate) fn refusal(&self) -> Option<Blocked> {
        self.api.refusal()
    }

    /// Sends a request, and reads the beginning of the response.
    pub(crate) async fn send(&self, call: Call, deadline: Instant) -> Result<Response, Failure> {
        let token = self.session_token.as_ref();
        let hidden = token.map_or_else(Vec::new, |token| vec![token.text.expose_secret()]);
        let request = self.request(call);
        self.api.send(request, &hidden, deadline).await
    }

    fn request(&self, call: Call) -> Request<Full<Bytes>> {
        let time = signature::basic_time(self.api.clock().now());
        let mut headers = call.headers.clone();
        headers.insert(DATE, visible(&time));
        headers.insert(BODY_HASH, visible(&call.body_hash));
        if let Some(token) = &self.session_token {
            headers.insert(SESSION_TOKEN, token.header.clone());
        }
        let authorization = self.authorization(&call, &headers, &time);
        headers.insert(AUTHORIZATION, authorization);
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = self.api.url(&call.path);
        *request.headers_mut() = headers;
        request
    }

    fn authorization(&self, call: &Call, headers: &HeaderMap, time: &str) -> HeaderValue {
        let mut signed = BTreeMap::from([("host", self.api.authority())]);
        for (name, value) in headers {
            if let Ok(value) = value.to_str() {
                signed.insert(name.as_str(), value);
            }
        }
        let signable = Signable {
            method: call.method.as_str(),
            path: &call.path,
            headers: signed,
            body_hash: &call.body_hash,
        };
        visible(&self.signer.authorization(&signable, time))
    }
}

impl SessionToken {
    fn new(secret: &Secret) -> Result<Self, SettingError> {
        let text = reveal("session_token", secret)?;
        let token = text.expose_secret();
        let is_visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(token).ok().filter(|_| is_visible);
        let Some(mut header) = header else {
            let problem = "is empty or has characters other than visible ASCII";
            return Err(SettingError::new("session_token", problem));
        };
        header.set_sensitive(true);
        Ok(Self { text, header })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("api", &self.api)
            .field("signer", &self.signer)
            .finish_non_exhaustive()
    }
}

fn signer(service: &'static str, access: &Access<'_>) -> Result<Signer, SettingError> {
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !SEPARATORS.contains(&byte);
        (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain)
    };
    for (setting, text) in [("region", access.region), ("access_key_id", access.key_id)] {
        if !is_name(text) {
            let problem =
                "is empty, too long, or has characters other than visible ASCII without , / =";
            return Err(SettingError::new(setting, problem));
        }
    }
    let secret = reveal("secret_access_key", access.secret_access_key)?;
    if secret.expose_secret().is_empty() {
        return Err(SettingError::new("secret_access_key", "is empty"));
    }
    Ok(Signer {
        access_key_id: access.key_id.to_owned(),
        secret,
        region: access.region.to_owned(),
        service,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::clock;

    #[test]
    fn a_request_is_signed_with_its_headers_and_the_session_token() {
        let endpoint = Endpoint::parse("endpoint", "http://127.0.0.1:9000").unwrap();
        let service = service(endpoint, &"hunter2-token".into());
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        let request = service.request(Call {
            method: Method::PUT,
            path: "/a/b%24c".to_owned(),
            headers,
            body: Bytes::from_static(b"x"),
            body_hash: hash(b"x"),
        });
        assert_eq!(request.uri(), "http://127.0.0.1:9000/a/b%24c");
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!(header("x-amz-date"), "20231114T221320Z");
        assert_eq!(header("x-amz-security-token"), "hunter2-token");
        assert!(
            header("authorization").starts_with(
                "AWS4-HMAC-SHA256 Credential=key/20231114/auto/s3/aws4_request, SignedHeaders=\
                 content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature="
            ),
            "{}",
            header("authorization")
        );
        assert!(!format!("{service:?} {request:?}").contains("hunter2"));
    }

    #[test]
    fn access_that_can_never_work_is_refused_by_name() {
        let refused = |region, access_key_id, secret: &str, token: &str| {
            let endpoint = Endpoint::parse("endpoint", "https://h").unwrap();
            let (secret, token) = (secret.into(), token.into());
            let access = access(region, access_key_id, &secret, &token);
            let destination = DestinationSettings::default();
            Service::new("s3", endpoint, &access, &destination, clock())
                .unwrap_err()
                .setting
        };
        assert_eq!(refused("", "key", "secret", "token"), "region");
        assert_eq!(refused("a/b", "key", "secret", "token"), "region");
        assert_eq!(refused("auto", "a key", "secret", "token"), "access_key_id");
        assert_eq!(refused("auto", "key", "", "token"), "secret_access_key");
        assert_eq!(refused("auto", "key", "secret", "a\nb"), "session_token");
    }

    fn service(endpoint: Endpoint, token: &Secret) -> Service {
        let secret = "hunter2-secret".into();
        let access = access("auto", "key", &secret, token);
        let destination = DestinationSettings::default();
        Service::new("s3", endpoint, &access, &destination, clock()).unwrap()
    }

    fn access<'a>(
        region: &'a str,
        access_key_id: &'a str,
        secret_access_key: &'a Secret,
        token: &'a Secret,
    ) -> Access<'a> {
        Access {
            region,
            key_id: access_key_id,
            secret_access_key,
            session_token: Some(token),
            allow: &[],
            ca: None,
        }
    }
}
