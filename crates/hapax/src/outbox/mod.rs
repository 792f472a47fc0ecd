//! Rules for events that are emitted in the caller's transaction.
//!
//! [`build_event`] builds the stored event from the emitted one: it adds the id, the tenant and the
//! context of the request, and refuses an event that no destination could deliver. It runs before
//! the row is written, so that an invalid event fails the request that emits it and never the
//! relay.

mod check;
mod draft;

pub use check::{EventCheck, Mismatch};
pub use draft::{BuiltEvent, Draft, decode_columns, decode_columns_to_show};

use crate::{
    clock::{Random, Timestamp},
    event::{Event, EventId, Headers, NewEvent, Payload},
    key::Tenant,
    keyring::KeyringError,
    limits::{
        AGGREGATE_BYTES_MAX, AVAILABLE_BEFORE, EVENT_HEADER_BYTES_MAX, EVENT_HEADERS_MAX,
        EVENT_TYPE_BYTES_MAX, PAYLOAD_BYTES_MAX,
    },
};

/// An event with its position in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEvent {
    /// The id of the row. Positions are in commit order within an aggregate.
    pub position: i64,
    /// The event.
    pub event: Event,
}

/// Builds the stored event from an emitted one.
///
/// Headers set by the emitter take precedence over `context`, and its tenant over `tenant`.
///
/// # Errors
/// Fails if a part is missing, malformed or too long.
pub fn build_event(
    new: NewEvent,
    tenant: Option<&Tenant>,
    context: &Headers,
    now: Timestamp,
    random: &Random,
) -> Result<Event, EventError> {
    check_kind(&new.kind)?;
    check_payload(&new.payload)?;
    if let Some(aggregate) = &new.aggregate {
        check_text("aggregate type", &aggregate.kind, AGGREGATE_BYTES_MAX)?;
        check_text("aggregate id", &aggregate.id, AGGREGATE_BYTES_MAX)?;
    }
    check_available_at(new.available_at)?;
    let mut headers = context.clone();
    headers.extend(new.headers);
    check_headers(&headers)?;
    Ok(Event {
        id: EventId::mint(now, random),
        kind: new.kind,
        tenant: new.tenant.or_else(|| tenant.cloned()),
        aggregate: new.aggregate,
        sequence: new.sequence,
        payload: new.payload,
        headers,
        created_at: now,
        available_at: new.available_at,
    })
}

/// Why an event cannot be emitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A part of the event is too long.
    #[error("{part} is too large: {size}, at most {max} are allowed")]
    TooLarge {
        /// The part.
        part: &'static str,
        /// Its size.
        size: usize,
        /// The maximum size.
        max: usize,
    },
    /// A part of the event is malformed.
    #[error("{part} {problem}")]
    Malformed {
        /// The part.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The catalogue of event types does not contain the type, or not in this version.
    #[error("event type {kind} {problem}")]
    NotInCatalogue {
        /// The type.
        kind: Box<str>,
        /// What is missing.
        problem: Box<str>,
    },
    /// The payload does not match the schema that the catalogue has for its type.
    #[error(transparent)]
    Mismatch(#[from] Box<Mismatch>),
    /// The payload cannot be encrypted.
    #[error("payload: {0}")]
    Encryption(#[from] KeyringError),
}

pub(crate) fn check_kind(kind: &str) -> Result<(), EventError> {
    check_text("event type", kind, EVENT_TYPE_BYTES_MAX)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !kind.chars().all(allowed) {
        let problem = "contains a character other than letters, digits and . _ - / :";
        return Err(EventError::Malformed {
            part: "event type",
            problem,
        });
    }
    Ok(())
}

fn check_payload(payload: &Payload) -> Result<(), EventError> {
    check_size("payload", payload.bytes().len(), PAYLOAD_BYTES_MAX)?;
    let Payload::Json(text) = payload else {
        return Ok(());
    };
    serde_json::from_str::<&serde_json::value::RawValue>(text)
        .map(drop)
        .map_err(|_| EventError::Malformed {
            part: "payload",
            problem: "is not JSON",
        })
}

fn check_headers(headers: &Headers) -> Result<(), EventError> {
    check_size("headers", headers.len(), EVENT_HEADERS_MAX)?;
    for (name, value) in headers {
        check_text("header name", name, EVENT_HEADER_BYTES_MAX)?;
        check_size("header", name.len() + value.len(), EVENT_HEADER_BYTES_MAX)?;
        if name.chars().chain(value.chars()).any(char::is_control) {
            let problem = "contains a control character";
            return Err(EventError::Malformed {
                part: "header",
                problem,
            });
        }
    }
    Ok(())
}

fn check_available_at(moment: Option<Timestamp>) -> Result<(), EventError> {
    let allowed = Timestamp::default()..AVAILABLE_BEFORE;
    if moment.is_none_or(|moment| allowed.contains(&moment)) {
        return Ok(());
    }
    Err(EventError::Malformed {
        part: "available_at",
        problem: "is before the year 1970 or after the year 9999",
    })
}

fn check_text(part: &'static str, text: &str, max: usize) -> Result<(), EventError> {
    if text.is_empty() {
        return Err(EventError::Malformed {
            part,
            problem: "is empty",
        });
    }
    if text.chars().any(char::is_control) {
        return Err(EventError::Malformed {
            part,
            problem: "contains a control character",
        });
    }
    check_size(part, text.len(), max)
}

fn check_size(part: &'static str, size: usize, max: usize) -> Result<(), EventError> {
    if size > max {
        Err(EventError::TooLarge { part, size, max })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_payload_byte_for_byte() {
        let text = "{ \"n\": 1.0,\n \"n\":9007199254740993 }";
        let sealed = check_build(NewEvent::new("a.b", Payload::Json(text.to_owned()))).unwrap();
        assert_eq!(sealed.payload.bytes(), text.as_bytes());
    }

    #[test]
    fn the_emitters_header_wins_over_the_context() {
        let event = NewEvent::json("a", &1).header("correlation_id", "mine");
        assert_eq!(
            check_build(event).unwrap().headers["correlation_id"],
            "mine"
        );
        assert_eq!(
            check_build(NewEvent::json("a", &1)).unwrap().headers["correlation_id"],
            "ctx"
        );
    }

    #[test]
    fn what_no_destination_could_carry_is_refused() {
        let refused = |event: NewEvent| check_build(event).unwrap_err().to_string();
        let json = |text: &str| NewEvent::new("a", Payload::Json(text.to_owned()));
        assert_eq!(refused(NewEvent::json("", &1)), "event type is empty");
        assert!(refused(NewEvent::json("a b", &1)).starts_with("event type contains"));
        assert_eq!(refused(json("{")), "payload is not JSON");
        assert_eq!(refused(json("")), "payload is not JSON");
        assert_eq!(
            refused(NewEvent::json("a", &1).header("x", "a\r\nb: c")),
            "header contains a control character"
        );
        assert_eq!(
            refused(NewEvent::json("a", &1).about("order", "")),
            "aggregate id is empty"
        );
        let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
        assert_eq!(
            refused(json(&large)),
            "payload is too large: 1048578, at most 1048576 are allowed"
        );
    }

    #[test]
    fn an_event_waits_for_a_moment_that_every_store_and_every_text_can_hold() {
        let build_at = |millis| {
            let moment = Timestamp::from_millis(millis);
            check_build(NewEvent::json("a", &1).available_at(moment))
        };
        let end = AVAILABLE_BEFORE.as_millis();
        for millis in [0, end - 1] {
            let sealed = build_at(millis).unwrap();
            assert_eq!(sealed.available_at, Some(Timestamp::from_millis(millis)));
        }
        for millis in [i64::MIN, -1, end, i64::MAX] {
            assert_eq!(
                build_at(millis).unwrap_err().to_string(),
                "available_at is before the year 1970 or after the year 9999"
            );
        }
    }

    #[test]
    fn an_event_belongs_to_the_tenant_of_its_transaction_unless_it_has_one() {
        let [alice, bob] = ["alice", "bob"].map(|name| Tenant::new(name).unwrap());
        let check = |event: NewEvent, expected: &Tenant| {
            let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
            let sealed = build_event(event, Some(&alice), &Headers::new(), at, &random).unwrap();
            assert_eq!(sealed.tenant.as_ref(), Some(expected));
        };
        check(NewEvent::json("a", &1), &alice);
        check(NewEvent::json("a", &1).tenant(bob.clone()), &bob);
    }

    fn check_build(event: NewEvent) -> Result<Event, EventError> {
        let context = Headers::from([("correlation_id".to_owned(), "ctx".to_owned())]);
        let random = Random::new(|| 7);
        build_event(event, None, &context, Timestamp::from_millis(1), &random)
    }
}
