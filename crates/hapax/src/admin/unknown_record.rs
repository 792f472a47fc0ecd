//! Record of a request that a gateway has sent and that has no stored response.
//!
//! The record is the recovery point of the key, so it is committed by the same fenced transaction that
//! decides who may send. Its first word is `sent`, before the first byte can leave, or `unknown`, after the
//! gateway has found out that there is no complete response. A key that stays at `sent` belonged to a gateway
//! that has died.

use std::{fmt, str::FromStr};

use serde::Serialize;

use crate::{clock::Timestamp, key::KeyForm, limits::RECOVERY_POINT_BYTES_MAX};

/// Maximum length of the name of an instance in a record.
const INSTANCE_BYTES_MAX: usize = 115;

/// The words of a record, without the name of the instance, are shorter than the rest.
const _: () = assert!(INSTANCE_BYTES_MAX + 140 <= RECOVERY_POINT_BYTES_MAX);

/// Why the outcome of a request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum UnknownReason {
    /// The gateway has ended, or has lost its key, while it waited for the response.
    Stopped,
    /// The response was not complete in time.
    Timeout,
    /// The connection failed before the response was complete.
    Cut,
    /// The service responded with a failure.
    Status,
    /// The response is too long to be stored.
    TooLarge,
    /// The response has no length, so it is not known to be complete.
    NoLength,
    /// The response is not valid for the request.
    Protocol,
}

impl UnknownReason {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Stopped,
        Self::Timeout,
        Self::Cut,
        Self::Status,
        Self::TooLarge,
        Self::NoLength,
        Self::Protocol,
    ];

    /// The name in records, metrics and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::NoLength => "no_length",
            Self::Protocol => "protocol",
        }
    }

    /// The reason with this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// The reason in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Stopped => "the gateway stopped before the response was complete",
            Self::Timeout => "the response was not complete in time",
            Self::Cut => "the connection to the service failed before the response was complete",
            Self::Status => "the service responded with a failure",
            Self::TooLarge => "the response of the service is too long to be stored",
            Self::NoLength => "the response of the service has no length and may be incomplete",
            Self::Protocol => "the response of the service is not valid for this request",
        }
    }
}

/// The record of a gateway: what is known of a request that it has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnknownRecord {
    /// Why there is no stored response.
    pub reason: UnknownReason,
    /// The upstream, or its instance, that had the request.
    pub upstream: String,
    /// When the request was sent.
    pub sent_at: Timestamp,
    /// When the gateway found out the reason. Absent if the gateway has died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noted_at: Option<Timestamp>,
    /// The status of the response, if its head arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<u16>,
    /// The number of bytes of the response's body that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// The form of the key in the header that the service has received. Absent if the request has no
    /// such header, or its key is derived.
    #[serde(skip)]
    pub key_form: Option<KeyForm>,
}

/// The recovery point was not written by a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a record of the gateway")]
pub struct NoUnknownRecord;

impl UnknownRecord {
    /// The record of a request that is about to be sent to an upstream.
    pub fn sent(upstream: &str, sent_at: Timestamp) -> Self {
        Self {
            reason: UnknownReason::Stopped,
            upstream: name(upstream),
            sent_at,
            noted_at: None,
            response_status: None,
            response_bytes: None,
            key_form: None,
        }
    }

    /// Sets the form of the key in the header of the request.
    #[must_use]
    pub fn with_key_form(self, key_form: Option<KeyForm>) -> Self {
        Self { key_form, ..self }
    }

    /// The same request, after the reason was found out.
    #[must_use]
    pub fn because(self, reason: UnknownReason, noted_at: Timestamp) -> Self {
        Self {
            reason,
            noted_at: Some(noted_at),
            ..self
        }
    }

    /// Sets the instance that had the request.
    #[must_use]
    pub fn at_instance(self, instance: &str) -> Self {
        Self {
            upstream: name(instance),
            ..self
        }
    }

    /// Sets what arrived of the response.
    #[must_use]
    pub fn received(self, status: u16, bytes: u64) -> Self {
        Self {
            response_status: Some(status),
            response_bytes: Some(bytes),
            ..self
        }
    }
}

impl fmt::Display for UnknownRecord {
    /// The recovery point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noted_at {
            None => write!(f, "sent at={}", self.sent_at.as_millis())?,
            Some(noted_at) => write!(
                f,
                "unknown reason={} at={} noted={}",
                self.reason.as_str(),
                self.sent_at.as_millis(),
                noted_at.as_millis()
            )?,
        }
        if let Some(status) = self.response_status {
            write!(f, " status={status}")?;
        }
        if let Some(bytes) = self.response_bytes {
            write!(f, " received={bytes}")?;
        }
        match self.key_form {
            None => {}
            Some(KeyForm::Bare) => f.write_str(" form=bare")?,
            Some(KeyForm::Quoted) => f.write_str(" form=quoted")?,
        }
        write!(f, " upstream={}", self.upstream)
    }
}

impl FromStr for UnknownRecord {
    type Err = NoUnknownRecord;

    /// Parses a recovery point. Words of a later version are ignored.
    fn from_str(text: &str) -> Result<Self, NoUnknownRecord> {
        let mut words = text.split(' ');
        let is_noted = match words.next() {
            Some("sent") => false,
            Some("unknown") => true,
            _ => return Err(NoUnknownRecord),
        };
        let (mut reason, mut upstream) = (UnknownReason::Stopped, String::new());
        let (mut sent_at, mut noted_at) = (None, None);
        let (mut response_status, mut response_bytes) = (None, None);
        let mut key_form = None;
        for word in words {
            let (name, value) = word.split_once('=').ok_or(NoUnknownRecord)?;
            match name {
                "reason" => reason = UnknownReason::named(value).ok_or(NoUnknownRecord)?,
                "at" => sent_at = Some(number(value)?),
                "noted" => noted_at = Some(number(value)?),
                "status" => response_status = Some(number(value)?),
                "received" => response_bytes = Some(number(value)?),
                "form" => key_form = Some(form(value)?),
                "upstream" => value.clone_into(&mut upstream),
                _ => {}
            }
        }
        if is_noted != noted_at.is_some() {
            return Err(NoUnknownRecord);
        }
        Ok(Self {
            reason,
            upstream,
            sent_at: Timestamp::from_millis(sent_at.ok_or(NoUnknownRecord)?),
            noted_at: noted_at.map(Timestamp::from_millis),
            response_status,
            response_bytes,
            key_form,
        })
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, NoUnknownRecord> {
    text.parse().map_err(|_| NoUnknownRecord)
}

fn form(word: &str) -> Result<KeyForm, NoUnknownRecord> {
    match word {
        "bare" => Ok(KeyForm::Bare),
        "quoted" => Ok(KeyForm::Quoted),
        _ => Err(NoUnknownRecord),
    }
}

/// A name without spaces, short enough for a recovery point.
fn name(text: &str) -> String {
    let graphic = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    text.chars().map(graphic).take(INSTANCE_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::check_name;

    #[test]
    fn a_record_of_a_gateway_is_parsed() {
        let sent: UnknownRecord = "sent at=1764294000000 upstream=orders".parse().unwrap();
        assert_eq!(sent.reason, UnknownReason::Stopped);
        assert_eq!(sent.sent_at, Timestamp::from_millis(1_764_294_000_000));
        assert_eq!((sent.noted_at, sent.upstream.as_str()), (None, "orders"));
        let text =
            "unknown reason=cut at=1 noted=9 status=201 received=17 later=x upstream=http://a:1";
        let noted: UnknownRecord = text.parse().unwrap();
        assert_eq!(noted.reason, UnknownReason::Cut);
        assert_eq!(noted.noted_at, Some(Timestamp::from_millis(9)));
        assert_eq!(
            (noted.response_status, noted.response_bytes),
            (Some(201), Some(17))
        );
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let sent = UnknownRecord::sent("orders", Timestamp::from_millis(1_764_294_000_000));
        check(&sent, "sent at=1764294000000 upstream=orders");
        for (form, word) in [(KeyForm::Bare, "bare"), (KeyForm::Quoted, "quoted")] {
            let text = format!("sent at=1764294000000 form={word} upstream=orders");
            check(&sent.clone().with_key_form(Some(form)), &text);
        }
        for reason in UnknownReason::ALL {
            let noted = sent
                .clone()
                .because(reason, Timestamp::from_millis(1_764_294_000_009))
                .at_instance("http://10.0.0.7:8000")
                .received(201, 17);
            let reason = reason.as_str();
            let text = format!(
                "unknown reason={reason} at=1764294000000 noted=1764294000009 status=201 \
                 received=17 upstream=http://10.0.0.7:8000"
            );
            check(&noted, &text);
        }
    }

    #[test]
    fn the_longest_record_is_a_recovery_point() {
        let long = "x y".repeat(1000);
        let record = UnknownRecord::sent(&long, Timestamp::from_millis(i64::MAX))
            .because(UnknownReason::NoLength, Timestamp::from_millis(i64::MAX))
            .received(u16::MAX, u64::MAX)
            .with_key_form(Some(KeyForm::Quoted));
        let text = record.to_string();
        assert!(check_name(&text).is_ok(), "{text}");
        assert_eq!(text.parse(), Ok(record));
    }

    #[test]
    fn the_recovery_point_of_another_service_is_not_a_record() {
        for text in [
            "",
            "charged",
            "sent",
            "sent mail",
            "unknown at=1",
            "unknown reason=odd at=1 noted=2",
            "sent at=x",
            "sent at=1 noted=2",
            "sent at=1 form=odd",
        ] {
            assert_eq!(
                text.parse::<UnknownRecord>(),
                Err(NoUnknownRecord),
                "{text:?}"
            );
        }
    }

    #[track_caller]
    fn check(record: &UnknownRecord, text: &str) {
        assert_eq!(record.to_string(), text);
        assert_eq!(text.parse().as_ref(), Ok(record));
    }
}
