//! Settings of the source `jwt`, and what makes them invalid.

use std::{sync::Arc, time::Duration};

use hapax::Clock;
use hapax_runtime::config::Span;
use hapax_sinks::secret::Secret;
use ring::hmac;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::{
    Algorithm, JwtVerifier, Keys, Material,
    claims::{ClaimPath, Expected},
};
use crate::tenant::jwks::{Jwks, JwksSettings, VerificationKey};

/// Maximum leeway. A longer one would make short-lived tokens useless.
const LEEWAY_MAX: Duration = Duration::from_mins(10);
/// Minimum length of a shared secret in bytes: the length of the hash (RFC 7518, section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Tokens whose claim names the tenant. Exactly one of `jwks` and `secret` is set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JwtSettings {
    /// The public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<JwksSettings>,
    /// The shared secret of HS256, at least 32 bytes. `algorithms` must then be `["HS256"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// The accepted algorithms. The default is every algorithm with a public key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<Algorithm>,
    /// The value that `iss` must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The accepted audiences; `aud` must contain one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// The claim that names the tenant: a name, a path such as `org.id`, or a URL, which is one
    /// name.
    #[serde(default = "claim")]
    pub claim: String,
    /// How far the clocks of the issuer and the gateway may differ.
    #[serde(default = "leeway")]
    pub leeway: Span,
}

fn claim() -> String {
    "sub".to_owned()
}

fn leeway() -> Span {
    Span(Duration::from_secs(30))
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            jwks: None,
            secret: None,
            algorithms: Vec::new(),
            issuer: None,
            audiences: Vec::new(),
            claim: claim(),
            leeway: leeway(),
        }
    }
}

impl JwtSettings {
    /// Checks the settings without reading any keys. A runtime is not needed.
    ///
    /// # Errors
    /// Fails if the settings are not valid. The text continues a sentence that begins with the name
    /// of the section.
    pub fn check(&self) -> Result<(), String> {
        expected(self)?;
        match source(self)? {
            KeySource::Secret(_) => Ok(()),
            KeySource::Set(jwks, _) => jwks.check(),
        }
    }
}

impl JwtVerifier {
    /// Creates a verifier. It starts the task that reads the keys, so it has to be called in a
    /// runtime.
    ///
    /// # Errors
    /// Fails if the settings are not valid. The text continues a sentence that begins with the name
    /// of the section.
    pub fn new(settings: &JwtSettings, clock: Clock) -> Result<Self, String> {
        let expected = expected(settings)?;
        let (keys, algorithms) = match source(settings)? {
            KeySource::Secret(key) => (Keys::Secret(key), vec![Algorithm::Hs256]),
            KeySource::Set(jwks, algorithms) => {
                (Keys::Set(Jwks::start(jwks, clock.clone())?), algorithms)
            }
        };
        Ok(Self {
            algorithms,
            keys,
            expected,
            clock,
        })
    }
}

fn expected(settings: &JwtSettings) -> Result<Expected, String> {
    let claim = &settings.claim;
    let tenant = ClaimPath::parse(claim).ok_or_else(|| {
        format!("claim: expected a name, a path such as \"org.id\" or a URL, got {claim:?}")
    })?;
    if settings.leeway.0 > LEEWAY_MAX {
        return Err(format!("leeway: expected at most {}", Span(LEEWAY_MAX)));
    }
    Ok(Expected {
        issuer: settings.issuer.clone(),
        audiences: settings.audiences.clone(),
        tenant,
        leeway: settings.leeway.0,
    })
}

/// Where the keys will be from.
enum KeySource<'a> {
    Secret(Arc<VerificationKey>),
    Set(&'a JwksSettings, Vec<Algorithm>),
}

fn source(settings: &JwtSettings) -> Result<KeySource<'_>, String> {
    match (&settings.jwks, &settings.secret) {
        (Some(jwks), None) => {
            let algorithms = asymmetric(&settings.algorithms)?;
            Ok(KeySource::Set(jwks, algorithms))
        }
        (None, Some(secret)) if settings.algorithms == [Algorithm::Hs256] => {
            shared(secret).map(KeySource::Secret)
        }
        (None, Some(_)) => Err("algorithms: expected [\"HS256\"] with a secret".to_owned()),
        _ => Err("has to contain either jwks or secret".to_owned()),
    }
}

fn asymmetric(configured: &[Algorithm]) -> Result<Vec<Algorithm>, String> {
    if configured.iter().any(|algorithm| algorithm.is_symmetric()) {
        return Err("algorithms: HS256 requires a secret and not jwks".to_owned());
    }
    Ok(match configured {
        [] => Algorithm::ASYMMETRIC.to_vec(),
        some => some.to_vec(),
    })
}

fn shared(secret: &Secret) -> Result<Arc<VerificationKey>, String> {
    let text = secret
        .reveal()
        .map_err(|problem| format!("secret: {problem}"))?;
    let bytes = text.expose_secret().as_bytes();
    if bytes.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "secret: expected at least {SECRET_BYTES_MIN} bytes"
        ));
    }
    Ok(Arc::new(VerificationKey {
        id: None,
        algorithm: Some(Algorithm::Hs256),
        material: Material::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)),
    }))
}

#[cfg(test)]
mod tests {
    use hapax::Timestamp;

    use super::*;

    #[tokio::test]
    async fn a_secret_never_goes_with_public_keys_or_their_algorithms() {
        let secret = || Some(Secret::from("0123456789abcdef0123456789abcdef"));
        let hs256 = JwtSettings {
            secret: secret(),
            algorithms: vec![Algorithm::Hs256],
            ..JwtSettings::default()
        };
        assert!(build(&hs256).is_ok());
        let without = |change: fn(&mut JwtSettings)| {
            let mut settings = hs256.clone();
            change(&mut settings);
            let error = build(&settings).unwrap_err();
            assert_eq!(settings.check(), Err(error.clone()));
            error
        };
        assert!(without(|it| it.algorithms.clear()).contains("algorithms"));
        assert!(without(|it| it.algorithms.push(Algorithm::Rs256)).contains("algorithms"));
        assert!(without(|it| it.secret = Some("short".into())).contains("32 bytes"));
        assert!(without(|it| it.secret = None).contains("jwks or secret"));
        assert!(without(|it| it.claim = "a..b".to_owned()).contains("claim"));
        assert!(without(|it| it.leeway = Span(Duration::from_hours(1))).contains("leeway"));
        assert!(without(|it| it.jwks = Some(JwksSettings::default())).contains("jwks or secret"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = JwtSettings {
            secret: Some("0123456789abcdef0123456789abcdef".into()),
            ..JwtSettings::default()
        };
        assert!(!format!("{settings:?}").contains("0123"));
    }

    fn build(settings: &JwtSettings) -> Result<JwtVerifier, String> {
        JwtVerifier::new(settings, Clock::new(|| Timestamp::from_millis(0)))
    }
}
