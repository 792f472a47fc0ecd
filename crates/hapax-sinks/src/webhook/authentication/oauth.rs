//! Tokens of OAuth 2.0: the current one, and when another is fetched.
//!
//! A token is used until shortly before it expires, and all deliveries share it. Deliveries that need
//! a token at the same time wait for one fetch. A token that the endpoint has refused is replaced
//! once. After a failed fetch, and after a replacement, the next one is at least a second later, so
//! that a token endpoint is never called for each event.

use std::{sync::Arc, time::Duration};

use hapax::{
    Clock, Timestamp,
    sink::{Receipt, SinkError},
};
use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout_at},
};

use super::token_endpoint::{Failure, Granted, TokenEndpoint, TokenError};
use crate::{
    limits::{TOKEN_LIFETIME, TOKEN_LIFETIME_MAX, TOKEN_MARGIN_MAX, TOKEN_PAUSE},
    settings::{DestinationSettings, OauthSettings, SettingError, WebhookSettings},
    webhook::Blocked,
};

/// The reason of an attempt that has no token.
const TOKEN: &str = "token";

/// The tokens of a webhook.
pub(in crate::webhook) struct Oauth {
    endpoint: TokenEndpoint,
    clock: Clock,
    state: Mutex<State>,
}

/// A token.
#[derive(Clone)]
pub(in crate::webhook) struct Token {
    text: SecretString,
    authorization: HeaderValue,
    /// The number of the fetch.
    number: u64,
    fetched_at: Timestamp,
    /// When the token is replaced.
    until: Timestamp,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    failed: Option<Failed>,
    /// When a token was last replaced because the endpoint had refused it.
    replaced_at: Option<Timestamp>,
    /// The number of the last fetch.
    last: u64,
}

/// A failed fetch. Deliveries of the next second fail for the same reason.
struct Failed {
    at: Timestamp,
    error: Arc<TokenError>,
    retry_after: Option<Duration>,
}

impl Oauth {
    pub(super) fn new(
        oauth: &OauthSettings,
        webhook: &WebhookSettings,
        destination: &DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        Ok(Self {
            endpoint: TokenEndpoint::new(oauth, webhook, destination)?,
            clock,
            state: Mutex::default(),
        })
    }

    /// Why the guard blocks the token endpoint, if the URL alone determines that.
    pub(super) fn refusal(&self) -> Option<Blocked> {
        self.endpoint.refusal()
    }

    /// The current token, or a new one if there is none or it is about to expire.
    pub(in crate::webhook) async fn token(&self, deadline: Instant) -> Result<Token, SinkError> {
        let mut state = self.lock(deadline).await?;
        self.current(&mut state, deadline).await
    }

    /// Another token than `refused`. `None` if a token was replaced less than a second ago: a new
    /// token does not help then.
    pub(in crate::webhook) async fn replace(
        &self,
        refused: &Token,
        deadline: Instant,
    ) -> Result<Option<Token>, SinkError> {
        let mut state = self.lock(deadline).await?;
        let is_current = |token: &Token| token.number == refused.number;
        // Another delivery may have replaced it meanwhile.
        if state.token.as_ref().is_some_and(is_current) {
            let now = self.clock.now();
            if state.replaced_at.is_some_and(|at| is_recent(at, now)) {
                return Ok(None);
            }
            state.replaced_at = Some(now);
            state.token = None;
        }
        self.current(&mut state, deadline).await.map(Some)
    }

    /// Waits while another delivery fetches a token.
    async fn lock(&self, deadline: Instant) -> Result<MutexGuard<'_, State>, SinkError> {
        let locked = timeout_at(deadline, self.state.lock()).await;
        locked.map_err(|_| SinkError::unavailable(TOKEN, TokenError::Timeout))
    }

    async fn current(&self, state: &mut State, deadline: Instant) -> Result<Token, SinkError> {
        let now = self.clock.now();
        if let Some(token) = &state.token
            && token.is_valid_at(now)
        {
            return Ok(token.clone());
        }
        if let Some(failed) = &state.failed
            && is_recent(failed.at, now)
        {
            return Err(failed.error());
        }
        let fetch = Box::pin(self.endpoint.fetch(&self.clock));
        let fetched = timeout_at(deadline, fetch).await;
        match fetched.unwrap_or_else(|_| Err(TokenError::Timeout.into())) {
            Ok(granted) => {
                state.failed = None;
                state.last += 1;
                let token = Token::new(granted, state.last, now);
                state.token = Some(token.clone());
                Ok(token)
            }
            Err(Failure { error, retry_after }) => {
                let failed = Failed {
                    at: self.clock.now(),
                    error: Arc::new(error),
                    retry_after,
                };
                let error = failed.error();
                state.token = None;
                state.failed = Some(failed);
                Err(error)
            }
        }
    }
}

impl Token {
    fn new(granted: Granted, number: u64, fetched_at: Timestamp) -> Self {
        Self {
            text: granted.text,
            authorization: granted.authorization,
            number,
            fetched_at,
            until: fetched_at.after(used_for(granted.expires_in)),
        }
    }

    /// The value of `authorization`.
    pub(in crate::webhook) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// The token itself, so that it can be masked.
    pub(super) fn text(&self) -> &str {
        self.text.expose_secret()
    }

    /// A token that was fetched in the future is not valid: the clock was set back.
    fn is_valid_at(&self, now: Timestamp) -> bool {
        (self.fetched_at..self.until).contains(&now)
    }
}

impl Failed {
    /// The endpoint would not take another event either, so the failure counts against it.
    fn error(&self) -> SinkError {
        SinkError::Unavailable {
            retry_after: self.retry_after,
            error_type: TOKEN,
            receipt: Receipt::default(),
            source: Arc::clone(&self.error).into(),
        }
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    (at..at.after(TOKEN_PAUSE)).contains(&now)
}

/// How long a token is used: a tenth of its lifetime, and at most half a minute, less than it is
/// valid.
fn used_for(expires_in: Option<Duration>) -> Duration {
    let lifetime = expires_in.unwrap_or(TOKEN_LIFETIME).min(TOKEN_LIFETIME_MAX);
    let margin = (lifetime / 10).min(TOKEN_MARGIN_MAX);
    lifetime.saturating_sub(margin).max(TOKEN_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_replaced_shortly_before_it_expires() {
        let used = |seconds| used_for(Some(Duration::from_secs(seconds))).as_secs();
        assert_eq!(used(3600), 3570);
        assert_eq!(used(100), 90);
        assert_eq!(used(0), 1, "a token is not fetched for each event");
        assert_eq!(used(u64::MAX), 24 * 60 * 60 - 30);
        assert_eq!(used_for(None).as_secs(), 270);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_prolong_a_wait() {
        let at = |millis| Timestamp::from_millis(millis);
        assert!(is_recent(at(5_000), at(5_999)));
        assert!(!is_recent(at(5_000), at(6_000)));
        assert!(!is_recent(at(5_000), at(4_999)));
    }
}
