//! Signatures of providers: who has sent a request, and which events it contains.
//!
//! There is one file for each scheme. A scheme verifies the bytes as they arrived, before anything
//! in them is used, and returns the provider's own ids of the events, by which repeated deliveries
//! are recognized. Every configured secret is tried, in constant time, and a refusal does not say
//! how many there are. Hostile input is a refusal, never a panic.
//!
//! Nothing in this module reads the time, opens a connection or prints a secret.

mod adyen;
mod crc32;
mod form;
mod github;
mod keys;
mod paypal;
mod presented;
mod shopify;
mod slack;
mod standard_webhooks;
mod stripe;
mod twilio;

use std::time::Duration;

use hapax::{Timestamp, key::hex, limits::MESSAGE_ID_BYTES_MAX};
use ring::digest;

pub use adyen::Adyen;
pub use github::GitHub;
pub use paypal::PayPal;
pub use presented::Presented;
pub use shopify::Shopify;
pub use slack::Slack;
pub use standard_webhooks::StandardWebhooks;
pub use stripe::Stripe;
pub use twilio::Twilio;

/// How the requests of a source are signed, with the keys that verify them.
#[derive(Debug)]
pub enum Scheme {
    /// Standard Webhooks.
    StandardWebhooks(StandardWebhooks),
    /// `Stripe-Signature`.
    Stripe(Stripe),
    /// `X-Hub-Signature-256`.
    GitHub(GitHub),
    /// `X-Shopify-Hmac-Sha256`.
    Shopify(Shopify),
    /// `X-Slack-Signature`.
    Slack(Slack),
    /// `X-Twilio-Signature`.
    Twilio(Twilio),
    /// `hmacSignature` of each notification.
    Adyen(Adyen),
    /// `PAYPAL-TRANSMISSION-SIG`, by a certificate.
    PayPal(PayPal),
}

/// The current time, and how far the signed time of a request may differ from it.
#[derive(Clone, Copy, Debug)]
pub struct TimeBound {
    /// The current time.
    pub now: Timestamp,
    /// The maximum difference, in both directions.
    pub tolerance: Duration,
}

/// The content of a verified request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// Events, at least one.
    Events(Vec<ProviderEvent>),
    /// A question whether this endpoint is the provider's own. The text is the response; there is
    /// no event.
    Challenge(String),
}

/// An event of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEvent {
    /// The provider's id of the event, the same in every delivery of it. It is 1 to 255 bytes long
    /// and has no control characters: a longer id is replaced by its hash.
    pub id: String,
    /// The provider's type of the event, if there is one.
    pub kind: Option<String>,
    /// The JSON of this event, if the request has several. Otherwise the event is the whole body.
    pub part: Option<String>,
}

/// Why a request is refused. The response to its sender does not contain the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A part that the scheme requires is missing.
    #[error("{part} is missing")]
    Missing {
        /// The header or the query parameter.
        part: &'static str,
    },
    /// A header occurs more than once, so it is unknown which one the sender meant.
    #[error("{part} occurs more than once")]
    Repeated {
        /// The header or the query parameter.
        part: &'static str,
    },
    /// A part is not of its form, or is too long.
    #[error("{part} is malformed")]
    Malformed {
        /// The header, the query parameter or the member of the body.
        part: &'static str,
    },
    /// The signed time is too far from the current time. The request may be a replay.
    #[error("time of the attempt is too far from the current time")]
    Stale,
    /// No signature matches any secret.
    #[error("no signature matches")]
    Signature,
    /// The signature matches, and the request has no id of its event.
    #[error("the event has no id: {part} is missing or empty")]
    NoId {
        /// The header or the member of the body in which the id is expected.
        part: &'static str,
    },
}

impl Refusal {
    /// Whether the sender has not shown that it knows a secret: 401, and otherwise 400.
    pub const fn is_unauthorized(self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Stale | Self::Signature)
    }
}

impl Scheme {
    /// Verifies a request and returns its events.
    ///
    /// # Errors
    /// Fails if the request is not signed with a configured secret, if its signed time differs too
    /// much from the current time, or if it is malformed.
    pub fn verify(&self, presented: &Presented<'_>, time: TimeBound) -> Result<Verified, Refusal> {
        match self {
            Self::StandardWebhooks(it) => it.verify(presented, time),
            Self::Stripe(it) => it.verify(presented, time),
            Self::GitHub(it) => it.verify(presented),
            Self::Shopify(it) => it.verify(presented),
            Self::Slack(it) => it.verify(presented, time),
            Self::Twilio(it) => it.verify(presented),
            Self::Adyen(it) => it.verify(presented),
            Self::PayPal(it) => it.verify(presented, time),
        }
    }

    /// Whether the scheme signs the time of the attempt.
    pub const fn signs_time(&self) -> bool {
        matches!(
            self,
            Self::StandardWebhooks(_) | Self::Stripe(_) | Self::Slack(_) | Self::PayPal(_)
        )
    }

    /// The request headers that an event keeps, in lower case. Signatures are not among them.
    pub const fn kept_headers(&self) -> &'static [&'static str] {
        match self {
            Self::StandardWebhooks(_) => &["webhook-id", "webhook-timestamp"],
            Self::Stripe(_) | Self::Adyen(_) => &[],
            Self::GitHub(_) => &[
                "x-github-delivery",
                "x-github-event",
                "x-github-hook-id",
                "x-github-hook-installation-target-id",
                "x-github-hook-installation-target-type",
            ],
            Self::Shopify(_) => &[
                "x-shopify-api-version",
                "x-shopify-event-id",
                "x-shopify-shop-domain",
                "x-shopify-topic",
                "x-shopify-triggered-at",
                "x-shopify-webhook-id",
            ],
            Self::Slack(_) => &["x-slack-retry-num", "x-slack-retry-reason"],
            Self::Twilio(_) => &["i-twilio-idempotency-token"],
            Self::PayPal(_) => &["paypal-transmission-id", "paypal-transmission-time"],
        }
    }

    /// The media type and the body of the response with which the provider counts a delivery as
    /// done.
    pub const fn acknowledgement(&self) -> (&'static str, &'static str) {
        match self {
            // Only this text is a success.
            Self::Adyen(_) => ("text/plain", "[accepted]"),
            // TwiML without instructions. Twilio logs a warning for a response of another type.
            Self::Twilio(_) => ("text/xml", "<Response/>"),
            _ => ("", ""),
        }
    }
}

impl Verified {
    /// A request that is one event.
    fn one(id: String, kind: Option<String>) -> Self {
        let part = None;
        Self::Events(vec![ProviderEvent { id, kind, part }])
    }
}

impl TimeBound {
    /// Checks a time in seconds since the Unix epoch.
    fn check(self, seconds: i64) -> Result<(), Refusal> {
        if seconds.abs_diff(self.now.as_secs()) > self.tolerance.as_secs() {
            Err(Refusal::Stale)
        } else {
            Ok(())
        }
    }

    /// Checks the text of a time in seconds since the Unix epoch.
    fn check_text(self, text: &str, part: &'static str) -> Result<(), Refusal> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = text.parse().ok().filter(|_| is_number);
        self.check(seconds.ok_or(Refusal::Malformed { part })?)
    }
}

/// The id under which the inbox knows an event: the provider's, or its hash if the inbox cannot
/// store it.
fn identity(id: &str, part: &'static str) -> Result<String, Refusal> {
    if id.is_empty() {
        return Err(Refusal::NoId { part });
    }
    let fits = id.len() <= MESSAGE_ID_BYTES_MAX && !id.chars().any(char::is_control);
    Ok(if fits {
        id.to_owned()
    } else {
        hashed(&[id.as_bytes()])
    })
}

/// The id of an event that contains none: the hash of what is signed.
fn hashed(parts: &[&[u8]]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(part);
    }
    format!("sha256:{}", hex(hash.finish().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_the_inbox_cannot_store_is_replaced_by_its_hash() {
        assert_eq!(identity("evt_1", "id").unwrap(), "evt_1");
        assert_eq!(identity("", "id"), Err(Refusal::NoId { part: "id" }));
        for id in ["x".repeat(256), "a\0b".to_owned(), "a\nb".to_owned()] {
            let hash = identity(&id, "id").unwrap();
            assert!(hash.starts_with("sha256:") && hash.len() == 71, "{hash}");
        }
    }

    #[test]
    fn a_time_is_checked_in_both_directions_and_has_only_digits() {
        let time = TimeBound {
            now: Timestamp::from_millis(1_000_000),
            tolerance: Duration::from_mins(5),
        };
        assert_eq!(time.check_text("700", "t"), Ok(()));
        assert_eq!(time.check_text("1300", "t"), Ok(()));
        assert_eq!(time.check_text("699", "t"), Err(Refusal::Stale));
        assert_eq!(time.check_text("1301", "t"), Err(Refusal::Stale));
        for text in [
            "",
            "-1000",
            "+1000",
            " 1000",
            "1e3",
            "99999999999999999999",
            "é",
        ] {
            let malformed = Err(Refusal::Malformed { part: "t" });
            assert_eq!(time.check_text(text, "t"), malformed, "{text}");
        }
    }
}
