//! Authentication at the endpoint, beside the signature.
//!
//! Configured headers and HTTP basic are the same in every request; a token of OAuth 2.0 is fetched
//! when it is needed. At most one setting decides the header `authorization`. No value is printed or
//! stored, and a value that the endpoint sends back is masked.

use hapax::Clock;
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, HeaderName},
};
use secrecy::{ExposeSecret, SecretString};

use super::guard::Blocked;
use crate::settings::{BasicSettings, DestinationSettings, SettingError, WebhookSettings, reveal};

mod headers;
mod token_endpoint;
mod oauth;

pub(super) use oauth::{Oauth, Token};

/// The authentication of the requests of a webhook.
pub(super) struct Authentication {
    headers: HeaderMap,
    oauth: Option<Oauth>,
    /// The texts that must not be in what is stored of a response.
    hidden: Vec<SecretString>,
}

impl Authentication {
    pub(super) fn new(
        settings: &WebhookSettings,
        destination: &DestinationSettings,
        clock: &Clock,
    ) -> Result<Self, SettingError> {
        check_conflict(settings)?;
        let mut headers = headers::read(&settings.headers)?;
        let mut hidden = Vec::new();
        if let Some(settings) = &settings.basic {
            let (value, password) = basic(settings)?;
            headers.insert(AUTHORIZATION, value);
            hidden.push(password);
        }
        for value in headers.values().filter_map(|value| value.to_str().ok()) {
            hidden.push(SecretString::from(value));
            // An endpoint may show the credentials without their scheme.
            let credentials = value.rsplit_once(' ').map(|(_, credentials)| credentials);
            hidden.extend(credentials.map(SecretString::from));
        }
        let oauth = settings.oauth.as_ref();
        let oauth = oauth.map(|it| Oauth::new(it, settings, destination, clock.clone()));
        Ok(Self {
            headers,
            oauth: oauth.transpose()?,
            hidden,
        })
    }

    /// Whether any request contains a secret.
    pub(super) fn has_secrets(&self) -> bool {
        !self.headers.is_empty() || self.oauth.is_some()
    }

    /// The tokens, if the requests have one.
    pub(super) fn oauth(&self) -> Option<&Oauth> {
        self.oauth.as_ref()
    }

    /// Why the guard blocks the token endpoint, if its URL alone determines that.
    pub(super) fn refusal(&self) -> Option<Blocked> {
        self.oauth.as_ref()?.refusal()
    }

    /// The headers that are the same in every request.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.headers.iter()
    }

    /// The texts that must not be in what is stored of a response.
    pub(super) fn hidden<'a>(&'a self, token: Option<&'a Token>) -> Vec<&'a str> {
        let fixed = self.hidden.iter().map(ExposeSecret::expose_secret);
        fixed.chain(token.map(Token::text)).collect()
    }
}

/// Refuses two settings that decide the same header.
fn check_conflict(settings: &WebhookSettings) -> Result<(), SettingError> {
    let mut names = settings.headers.keys();
    let deciding = [
        ("basic", settings.basic.is_some()),
        ("oauth", settings.oauth.is_some()),
        (
            "headers.authorization",
            names.any(|name| name.eq_ignore_ascii_case("authorization")),
        ),
    ];
    let mut deciding = deciding.into_iter().filter(|(_, is_set)| *is_set);
    match (deciding.next(), deciding.next()) {
        (Some((one, _)), Some((other, _))) => {
            let problem = format!(
                "decides the header authorization, and so does {one}: expected one of basic, \
                 oauth and headers.authorization"
            );
            Err(SettingError::new(other, problem))
        }
        _ => Ok(()),
    }
}

/// The value of `authorization`, and the password.
fn basic(settings: &BasicSettings) -> Result<(HeaderValue, SecretString), SettingError> {
    let BasicSettings { user, password } = settings;
    if user.contains(':') {
        let problem = "contains a colon, which would end the user";
        return Err(SettingError::new("basic.user", problem));
    }
    let password = reveal("basic.password", password)?;
    for (setting, text) in [
        ("basic.user", user.as_str()),
        ("basic.password", password.expose_secret()),
    ] {
        if text.chars().any(char::is_control) {
            return Err(SettingError::new(setting, "contains a control character"));
        }
    }
    let value = headers::basic(user, password.expose_secret());
    Ok((value, password))
}

#[cfg(test)]
mod tests {
    use hapax::Timestamp;

    use super::*;
    use crate::{secret::Secret, settings::OauthSettings};

    #[test]
    fn one_setting_at_most_decides_the_header_authorization() {
        let mut settings = with_basic("hapax", "hunter2");
        settings
            .headers
            .insert("Authorization".to_owned(), "Bearer hunter3".into());
        check(&settings, "headers.authorization", "so does basic");
        settings.oauth = Some(OauthSettings::default());
        check(&settings, "oauth", "so does basic");
        settings.basic = None;
        check(&settings, "headers.authorization", "so does oauth");
        settings.oauth = None;
        let authentication = build(&settings).unwrap();
        let headers: Vec<_> = authentication.headers().collect();
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[0].1, "Bearer hunter3");
        assert!(authentication.hidden(None).contains(&"hunter3"));
    }

    #[test]
    fn a_user_or_a_password_that_cannot_be_sent_is_refused() {
        check(&with_basic("a:b", "hunter2"), "basic.user", "a colon");
        check(&with_basic("a\n", "hunter2"), "basic.user", "control");
        check(
            &with_basic("a", "hunter2\0hunter2"),
            "basic.password",
            "control",
        );
    }

    #[test]
    fn a_token_endpoint_that_can_never_work_is_refused_by_its_setting() {
        let with = |token_url: &str, client_id: &str| WebhookSettings {
            oauth: Some(OauthSettings {
                token_url: token_url.to_owned(),
                client_id: client_id.to_owned(),
                client_secret: Secret::Apart,
                ..OauthSettings::default()
            }),
            ..WebhookSettings::default()
        };
        for url in ["", "example.com", "https://a:hunter2@example.com/"] {
            check(&with(url, "a"), "oauth.token_url", "");
        }
        let url = "https://example.com/token";
        check(&with(url, ""), "oauth.client_id", "is empty");
        check(&with(url, "a"), "oauth.client_secret", "apart");
    }

    fn with_basic(user: &str, password: &str) -> WebhookSettings {
        WebhookSettings {
            basic: Some(BasicSettings {
                user: user.to_owned(),
                password: password.into(),
            }),
            ..WebhookSettings::default()
        }
    }

    fn build(settings: &WebhookSettings) -> Result<Authentication, SettingError> {
        let clock = Clock::new(|| Timestamp::from_millis(0));
        Authentication::new(settings, &DestinationSettings::default(), &clock)
    }

    #[track_caller]
    fn check(settings: &WebhookSettings, setting: &str, problem: &str) {
        let Err(error) = build(settings) else {
            panic!("{setting} was accepted");
        };
        assert_eq!(error.setting, setting);
        assert!(error.problem.contains(problem), "{error}");
        assert!(!error.problem.contains("hunter2"), "{error}");
    }
}
