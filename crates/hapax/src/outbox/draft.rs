//! The events of one transaction, until it commits, in the words of their rows.
//!
//! An event is sealed as it is emitted and put into the columns that stores keep: JSON payloads
//! as they were given; any other content as base64, with its media type under the header
//! `content-type`, which is therefore reserved; encrypted ones as base64, with their key's id under
//! a header that is reserved as well. The work is done before the store is asked.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{EventError, check_payload, seal};
use crate::{
    clock::{Clock, Random},
    event::{Event, EventId, Headers, NewEvent, Payload},
    idempotency::Claim,
    key::{IdempotencyKey, Scope, Tenant},
    keyring::{ENCRYPTED_UNDER, Keyring},
    limits::EVENTS_PER_TRANSACTION_MAX,
};

const CONTENT_TYPE: &str = "content-type";
const KEY_HASH: &str = "idempotency_key_hash";

/// The events of one transaction, until it commits.
#[derive(Debug)]
pub struct Draft {
    tenant: Option<Tenant>,
    key: Option<IdempotencyKey>,
    context: Headers,
    events: Vec<Sealed>,
}

/// An event with those of its columns that cost work.
#[derive(Debug)]
pub struct Sealed {
    /// The event.
    pub event: Event,
    /// Its headers as JSON.
    pub headers: String,
    /// The payload in base64, where it is no JSON or encrypted.
    encoded: Option<String>,
}

impl Draft {
    /// Of a transaction without a key.
    pub fn new(tenant: Option<Tenant>, context: Headers) -> Self {
        Self {
            tenant,
            key: None,
            context,
            events: Vec::new(),
        }
    }

    /// Of the transaction that `claim` opens; it takes the claim's context.
    pub fn of(claim: &mut Claim) -> Self {
        let context = std::mem::take(&mut claim.context);
        Self::under(&claim.scope, context)
    }

    /// Of a transaction under a key that is held already.
    pub fn under(scope: &Scope, context: Headers) -> Self {
        Self {
            key: Some(scope.key.clone()),
            ..Self::new(Some(scope.tenant.clone()), context)
        }
    }

    /// What the request carries: its `traceparent`, for one.
    pub fn context(&self) -> &Headers {
        &self.context
    }

    /// Adds an event, with the context of its request.
    ///
    /// # Errors
    /// Fails when the event could not be carried, or is one too many; the draft stays usable.
    pub fn seal(
        &mut self,
        new: NewEvent,
        clock: &Clock,
        random: &Random,
        keyring: &Keyring,
    ) -> Result<EventId, EventError> {
        let size = self.events.len() + 1;
        let max = EVENTS_PER_TRANSACTION_MAX;
        if size > max {
            return Err(EventError::TooLarge {
                part: "transaction's events",
                size,
                max,
            });
        }
        if let Some(key) = self.key.take() {
            // Who opened the transaction may have put it there already: hashing costs.
            self.context
                .entry(KEY_HASH.to_owned())
                .or_insert_with(|| key.short_hash());
        }
        let event = seal(
            new,
            self.tenant.as_ref(),
            &self.context,
            clock.now(),
            random,
        )?;
        let reserved = [
            (CONTENT_TYPE, "content-type is the payload's own"),
            (
                ENCRYPTED_UNDER,
                "hapax-encrypted-under is the keyring's own",
            ),
        ];
        for (name, problem) in reserved {
            if event.headers.contains_key(name) {
                return Err(EventError::Malformed {
                    part: "header",
                    problem,
                });
            }
        }
        let id = event.id;
        self.events.push(Sealed::of(event, keyring)?);
        Ok(id)
    }

    /// The events, in the order in which they were emitted.
    pub fn into_events(self) -> Vec<Sealed> {
        self.events
    }

    /// Takes the events out.
    pub fn take_events(&mut self) -> Vec<Sealed> {
        std::mem::take(&mut self.events)
    }
}

impl Sealed {
    fn of(mut event: Event, keyring: &Keyring) -> Result<Self, EventError> {
        let encoded = match &event.payload {
            Payload::Json(_) => None,
            Payload::Binary {
                content_type,
                bytes,
            } => {
                event
                    .headers
                    .insert(CONTENT_TYPE.to_owned(), content_type.clone());
                Some(STANDARD.encode(bytes))
            }
        };
        let plain = match (&encoded, &event.payload) {
            (None, Payload::Json(text)) => text,
            (encoded, _) => encoded.as_deref().unwrap_or_default(),
        };
        let encrypted = keyring.encrypt_payload(event.id, &mut event.headers, plain)?;
        let encoded = encrypted.or(encoded);
        let headers = serde_json::to_string(&event.headers).map_err(|_| EventError::Malformed {
            part: "headers",
            problem: "cannot be written as JSON",
        })?;
        Ok(Self {
            event,
            headers,
            encoded,
        })
    }

    /// An event that was committed, with another payload: its columns anew, encrypted where they were.
    ///
    /// # Errors
    /// Fails when the payload is too large, or no JSON, or the system gives no random bytes.
    pub fn anew(
        event: &Event,
        payload: String,
        is_encrypted: bool,
        keyring: &Keyring,
    ) -> Result<Self, EventError> {
        let payload = Payload::Json(payload);
        check_payload(&payload)?;
        let event = Event {
            payload,
            ..event.clone()
        };
        if is_encrypted {
            Self::of(event, &keyring.writing())
        } else {
            Self::of(event, keyring)
        }
    }

    /// The payload as its column holds it.
    pub fn payload(&self) -> &str {
        match (&self.encoded, &self.event.payload) {
            (None, Payload::Json(text)) => text,
            (encoded, _) => encoded.as_deref().unwrap_or_default(),
        }
    }
}

/// Reads an event's headers and payload back from their columns; an error says what is wrong.
///
/// An event whose payload no key will ever decrypt keeps the header [`ENCRYPTED_UNDER`], and its
/// payload as the column has it: the relay makes a dead letter of it.
///
/// # Errors
/// Fails when the headers are no JSON object of texts, or a payload is not the base64 it should be,
/// or is encrypted under a key that is not in the keyring.
pub fn unseal(
    event: EventId,
    headers: &str,
    payload: String,
    keyring: &Keyring,
) -> Result<(Headers, Payload), String> {
    let mut headers: Headers = serde_json::from_str(headers).map_err(|error| error.to_string())?;
    let payload = keyring
        .decrypt_payload(event, &mut headers, payload)
        .map_err(|error| format!("payload: {error}"))?;
    if headers.contains_key(ENCRYPTED_UNDER) {
        return Ok((headers, Payload::Json(as_json(payload))));
    }
    let Some(content_type) = headers.remove(CONTENT_TYPE) else {
        return Ok((headers, Payload::Json(payload)));
    };
    let bytes = STANDARD
        .decode(payload)
        .map_err(|error| format!("payload: {error}"))?;
    let bytes = Bytes::from(bytes);
    Ok((
        headers,
        Payload::Binary {
            content_type,
            bytes,
        },
    ))
}

/// A column's text, in quotes where it is no JSON.
fn as_json(text: String) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => serde_json::Value::String(text).to_string(),
    }
}
