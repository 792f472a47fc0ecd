//! The events of one open transaction, encoded as the columns of their rows.
//!
//! An event is built when it is emitted and encoded for the columns of the store. JSON payloads are
//! stored as they are. Any other content is stored as base64, with its media type in the header
//! `content-type`, which is therefore reserved. Encrypted payloads are stored as base64, with the
//! id of their key in another reserved header. All of this happens before the store is called.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{EventCheck, EventError, build_event, check_payload};
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

/// The events of one open transaction.
#[derive(Debug)]
pub struct Draft {
    tenant: Option<Tenant>,
    key: Option<IdempotencyKey>,
    context: Headers,
    events: Vec<BuiltEvent>,
}

/// An event with its encoded columns.
#[derive(Debug)]
pub struct BuiltEvent {
    /// The event.
    pub event: Event,
    /// The headers as JSON.
    pub headers: String,
    /// The payload in base64, if it is not JSON or is encrypted.
    encoded: Option<String>,
}

impl Draft {
    /// Creates the draft of a transaction without a key.
    pub fn new(tenant: Option<Tenant>, context: Headers) -> Self {
        Self {
            tenant,
            key: None,
            context,
            events: Vec::new(),
        }
    }

    /// Creates the draft of the transaction that `claim` opens, with the context of the claim.
    pub fn of(claim: &mut Claim) -> Self {
        let context = std::mem::take(&mut claim.context);
        Self::under(&claim.scope, context)
    }

    /// Creates the draft of a transaction under a key that is already owned.
    pub fn under(scope: &Scope, context: Headers) -> Self {
        Self {
            key: Some(scope.key.clone()),
            ..Self::new(Some(scope.tenant.clone()), context)
        }
    }

    /// The context of the request, such as its `traceparent`.
    pub fn context(&self) -> &Headers {
        &self.context
    }

    /// Adds an event with the context of its request.
    ///
    /// # Errors
    /// Fails if the event is not valid, if `check` refuses it, or if there are too many events. The
    /// draft stays usable.
    pub fn add(
        &mut self,
        new: NewEvent,
        clock: &Clock,
        random: &Random,
        keyring: &Keyring,
        check: &EventCheck,
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
            // The transaction may have set the key hash already; computing it again would cost
            // time.
            self.context
                .entry(KEY_HASH.to_owned())
                .or_insert_with(|| key.short_hash());
        }
        let event = build_event(
            new,
            self.tenant.as_ref(),
            &self.context,
            clock.now(),
            random,
        )?;
        let reserved = [
            (
                CONTENT_TYPE,
                "content-type is reserved for the payload's media type",
            ),
            (
                ENCRYPTED_UNDER,
                "hapax-encrypted-under is reserved for the keyring",
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
        check.check(&event)?;
        let id = event.id;
        self.events.push(BuiltEvent::of(event, keyring)?);
        Ok(id)
    }

    /// The events, in the order in which they were emitted.
    pub fn into_events(self) -> Vec<BuiltEvent> {
        self.events
    }

    /// Removes and returns the events.
    pub fn take_events(&mut self) -> Vec<BuiltEvent> {
        std::mem::take(&mut self.events)
    }
}

impl BuiltEvent {
    /// Encodes an event, and encrypts its payload.
    pub(crate) fn of(mut event: Event, keyring: &Keyring) -> Result<Self, EventError> {
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
            problem: "cannot be serialized as JSON",
        })?;
        Ok(Self {
            event,
            headers,
            encoded,
        })
    }

    /// Encodes a committed event with another payload, encrypted if the original was.
    ///
    /// # Errors
    /// Fails if the payload is too large or not JSON, or if the system provides no random bytes.
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

    /// The payload as stored in its column.
    pub fn payload(&self) -> &str {
        match (&self.encoded, &self.event.payload) {
            (None, Payload::Json(text)) => text,
            (encoded, _) => encoded.as_deref().unwrap_or_default(),
        }
    }
}

/// Decodes the headers and the payload of an event from their columns. An error says what is wrong.
///
/// An event whose payload cannot be decrypted by any key keeps the header [`ENCRYPTED_UNDER`] and
/// the payload of the column. The relay makes it a dead letter.
///
/// # Errors
/// Fails if the headers are not a JSON object of strings, if a payload is not valid base64, or if
/// it is encrypted with a key that is not in the keyring.
pub fn decode_columns(
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

/// Decodes an event like [`decode_columns`], to display it. A payload that cannot be decrypted is
/// returned as it is stored, as a JSON string; the headers name the key that encrypted it.
///
/// # Errors
/// Fails like [`decode_columns`], except if the payload is encrypted.
pub fn decode_columns_to_show(
    event: EventId,
    headers: &str,
    payload: String,
    keyring: &Keyring,
) -> Result<(Headers, Payload), String> {
    decode_columns(event, headers, payload.clone(), keyring).or_else(|error| {
        let headers: Headers = serde_json::from_str(headers).map_err(|_| error.clone())?;
        let is_encrypted = headers.contains_key(ENCRYPTED_UNDER);
        let payload = Payload::Json(serde_json::Value::String(payload).to_string());
        is_encrypted.then_some((headers, payload)).ok_or(error)
    })
}

/// The text of a column, in quotes if it is not JSON.
fn as_json(text: String) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => serde_json::Value::String(text).to_string(),
    }
}
