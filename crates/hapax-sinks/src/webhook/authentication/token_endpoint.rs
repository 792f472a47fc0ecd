//! Token endpoint of OAuth 2.0: exchanges the credentials of the client for a token (RFC 6749, 4.4).
//!
//! Connections go through the guard and the client of webhooks: no redirects, no proxies. Without
//! TLS, only permitted networks outside the public internet are open, because the request contains a
//! secret. The size of the response is bounded. An error names what was wrong with a response and
//! never contains a part of it, except for an error code of the standard.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use hapax::{Clock, retry};
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::headers;
use crate::{
    limits::TOKEN_RESPONSE_BYTES_MAX,
    settings::{
        AuthStyle, DestinationSettings, OauthSettings, SettingError, WebhookSettings, reveal,
    },
    tls,
    webhook::{Blocked, JSON, SENDER, address, client, confidential, connect::Dial},
};

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
/// Characters that are escaped in a form.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
/// The error codes of RFC 6749, 5.2, and of widespread extensions. Others are not repeated: the text
/// is that of another system.
const CODES: [&str; 9] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "temporarily_unavailable",
];

/// A token endpoint, with the credentials of the client.
pub(super) struct TokenEndpoint {
    url: Uri,
    refusal: Option<Blocked>,
    client: client::HttpClient,
    authorization: Option<HeaderValue>,
    form: SecretString,
}

/// A token as it was granted.
pub(super) struct Granted {
    pub(super) text: SecretString,
    pub(super) authorization: HeaderValue,
    /// How long the token is valid, if the response says so.
    pub(super) expires_in: Option<Duration>,
}

/// Why there is no token, and the minimum wait that the token endpoint asked for.
pub(super) struct Failure {
    pub(super) error: TokenError,
    pub(super) retry_after: Option<Duration>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("connection to the token endpoint is not allowed")]
    Blocked(#[source] Blocked),
    #[error("no response of the token endpoint")]
    Exchange(#[source] client::ExchangeError),
    #[error("token endpoint has not responded in time")]
    Timeout,
    #[error("token endpoint responded with {0}")]
    Status(StatusCode),
    #[error("token endpoint responded with {0} and the error {1}")]
    Refused(StatusCode, &'static str),
    #[error("response of the token endpoint is larger than {most} bytes", most = TOKEN_RESPONSE_BYTES_MAX)]
    TooLarge,
    #[error("response of the token endpoint is incomplete")]
    Incomplete(#[source] Box<dyn Error + Send + Sync>),
    #[error("response of the token endpoint is not a JSON object")]
    NotJson,
    #[error("response of the token endpoint has no access_token")]
    NoToken,
    #[error("access_token has characters other than printable ASCII")]
    NotAHeader,
    #[error("response of the token endpoint has another token_type than Bearer")]
    NotBearer,
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        Self {
            error,
            retry_after: None,
        }
    }
}

impl TokenEndpoint {
    pub(super) fn new(
        oauth: &OauthSettings,
        webhook: &WebhookSettings,
        destination: &DestinationSettings,
    ) -> Result<Self, SettingError> {
        let of_token = |error: SettingError| SettingError::new("oauth.token_url", error.problem);
        let (url, host, port) = address(&oauth.token_url).map_err(of_token)?;
        if oauth.client_id.is_empty() {
            return Err(SettingError::new("oauth.client_id", "is empty"));
        }
        let secret = reveal("oauth.client_secret", &oauth.client_secret)?;
        let secret = secret.expose_secret();
        let (tls, _) = tls::read(webhook.ca.as_deref())?;
        let guard = confidential(&url, webhook.allow.clone());
        let dial = Dial::new(host, port, guard, destination.resolver.clone());
        let authorization = match oauth.auth_style {
            // Both are escaped before they are encoded (RFC 6749, 2.3.1).
            AuthStyle::Basic => Some(headers::basic(&escaped(&oauth.client_id), &escaped(secret))),
            AuthStyle::Body => None,
        };
        Ok(Self {
            refusal: dial.refusal(),
            client: client::new(dial, tls, destination.timeout),
            url,
            authorization,
            form: form(oauth, secret),
        })
    }

    /// Why the guard blocks the token endpoint, if the URL alone determines that.
    pub(super) fn refusal(&self) -> Option<Blocked> {
        self.refusal.clone()
    }

    /// Exchanges the credentials for a token.
    pub(super) async fn fetch(&self, clock: &Clock) -> Result<Granted, Failure> {
        if let Some(blocked) = self.refusal() {
            return Err(TokenError::Blocked(blocked).into());
        }
        let response = self.client.request(self.request()).await;
        let response = response.map_err(|error| TokenError::Exchange(error.into()))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, TOKEN_RESPONSE_BYTES_MAX).collect().await;
        if !parts.status.is_success() {
            let code = body.ok().and_then(|body| error_code(&body.to_bytes()));
            let header = |name: &'static str| parts.headers.get(name)?.to_str().ok();
            return Err(Failure {
                error: match code {
                    Some(code) => TokenError::Refused(parts.status, code),
                    None => TokenError::Status(parts.status),
                },
                retry_after: retry::retry_after(header, clock.now()),
            });
        }
        match body {
            Ok(body) => granted(&body.to_bytes()).map_err(Failure::from),
            Err(error) if error.is::<LengthLimitError>() => Err(TokenError::TooLarge.into()),
            Err(error) => Err(TokenError::Incomplete(error).into()),
        }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let form = self.form.expose_secret().to_owned();
        let mut request = Request::new(Full::new(Bytes::from(form)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, FORM);
        headers.insert(ACCEPT, JSON);
        headers.insert(USER_AGENT, SENDER);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}

/// The body of the request.
fn form(oauth: &OauthSettings, secret: &str) -> SecretString {
    let mut fields = vec![("grant_type", "client_credentials")];
    fields.extend(oauth.scope.as_deref().map(|scope| ("scope", scope)));
    let audience = oauth.audience.as_deref();
    fields.extend(audience.map(|audience| ("audience", audience)));
    if oauth.auth_style == AuthStyle::Body {
        fields.push(("client_id", oauth.client_id.as_str()));
        fields.push(("client_secret", secret));
    }
    let fields = fields
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    SecretString::from(fields.collect::<Vec<_>>().join("&"))
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn granted(body: &[u8]) -> Result<Granted, TokenError> {
    let response: Value = serde_json::from_slice(body).map_err(|_| TokenError::NotJson)?;
    let response = response.as_object().ok_or(TokenError::NotJson)?;
    let text = |name: &str| response.get(name)?.as_str();
    let token = text("access_token").filter(|token| !token.is_empty());
    let token = token.ok_or(TokenError::NoToken)?;
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(TokenError::NotBearer);
    }
    let authorization = headers::value(&format!("Bearer {token}"));
    Ok(Granted {
        text: SecretString::from(token),
        authorization: authorization.ok_or(TokenError::NotAHeader)?,
        expires_in: response.get("expires_in").and_then(seconds),
    })
}

/// A number of seconds, which some servers send as a text.
fn seconds(value: &Value) -> Option<Duration> {
    let parsed = || value.as_str()?.trim().parse().ok();
    value.as_u64().or_else(parsed).map(Duration::from_secs)
}

fn error_code(body: &[u8]) -> Option<&'static str> {
    let response: Value = serde_json::from_slice(body).ok()?;
    let code = response.get("error")?.as_str()?;
    CODES.into_iter().find(|known| *known == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credentials_are_escaped_as_in_a_form() {
        let oauth = OauthSettings {
            client_id: "a:b c".to_owned(),
            scope: Some("read write".to_owned()),
            audience: Some("https://api.example.com/".to_owned()),
            auth_style: AuthStyle::Body,
            ..OauthSettings::default()
        };
        assert_eq!(
            form(&oauth, "s&=%").expose_secret(),
            "grant_type=client_credentials&scope=read%20write\
             &audience=https%3A%2F%2Fapi.example.com%2F&client_id=a%3Ab%20c\
             &client_secret=s%26%3D%25"
        );
    }

    #[test]
    fn the_lifetime_is_a_number_or_a_text() {
        let lifetime = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            seconds(&value).map(|it| it.as_secs())
        };
        assert_eq!(lifetime("3600"), Some(3600));
        assert_eq!(lifetime("\"3599\""), Some(3599));
        for other in ["-1", "null", "\"soon\"", "[]"] {
            assert_eq!(lifetime(other), None, "{other}");
        }
    }

    #[test]
    fn an_error_code_is_shown_only_if_the_standard_has_it() {
        let code = |text: &str| error_code(text.as_bytes());
        assert_eq!(
            code("{\"error\": \"invalid_client\"}"),
            Some("invalid_client")
        );
        assert_eq!(code("{\"error\": \"hunter2\"}"), None);
        assert_eq!(code("hunter2"), None);
    }
}
