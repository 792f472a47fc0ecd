//! Outcomes of `XADD`. No failure is permanent.
//!
//! A server that is full, loading, read-only or busy recovers. A key that is not a stream, a failed
//! login and a missing permission can be repaired. The error says which of them it is.

use std::sync::Arc;

use hapax::sink::SinkError;
use redis::{ErrorKind, RedisError, ServerError, Value};

use crate::{resolve::LookupError, tls};

const READ_ONLY: &str = "READONLY";

/// Why an event was not added.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("connection to redis failed")]
    Link(#[source] Arc<RedisError>),
    #[error("redis has no address")]
    Resolve(#[source] LookupError),
    #[error("redis did not respond in time")]
    Silent,
    #[error("redis sent a wrong number of responses")]
    Answers,
    #[error("redis did not respond with an entry id")]
    NoId,
    #[error("key {0} is not a stream: rename it, or choose another stream")]
    WrongType(String),
    #[error(
        "stream {stream} is not on this node of a cluster ({code} {detail}): use the address of a \
         proxy, or of a single server"
    )]
    Elsewhere {
        stream: String,
        code: String,
        detail: String,
    },
    #[error("redis is out of memory (maxmemory): {0}")]
    Full(String),
    #[error("redis requires a login: {0}")]
    Login(String),
    #[error("redis refused the entry: {code} {detail}")]
    Refused { code: String, detail: String },
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Link(Arc::new(error))
    }
}

impl Failure {
    /// Whether the failure is about the stream of this event, while other events go to other
    /// streams.
    pub(super) fn is_of_stream(&self) -> bool {
        match self {
            Self::WrongType(_) | Self::Elsewhere { .. } => true,
            // The text may contain the name of the user, which is arbitrary.
            Self::Login(detail) => {
                detail.contains("access a key") || detail.contains("one of the keys")
            }
            _ => false,
        }
    }

    /// The failure of an event whose stream depends on the event.
    pub(super) fn of_event(self) -> SinkError {
        if self.is_of_stream() {
            SinkError::declined(self.error_type(), self)
        } else {
            self.into()
        }
    }

    fn error_type(&self) -> &'static str {
        match self {
            Self::Link(error) => link_type(error),
            Self::Resolve(_) => "resolve",
            Self::Silent => "timeout",
            Self::Answers | Self::NoId => "answer",
            Self::WrongType(_) => "wrong_type",
            Self::Elsewhere { .. } => "moved",
            Self::Full(_) => "full",
            Self::Login(_) => "login",
            Self::Refused { code, .. } => refusal_type(code),
        }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        Self::unavailable(failure.error_type(), failure)
    }
}

/// Evaluates the response to an entry that was added to `stream`.
pub(super) fn outcome_of(answer: &Value, stream: &str) -> Result<(), Failure> {
    match answer {
        Value::BulkString(text) if is_id(text) => Ok(()),
        Value::ServerError(error) => Err(refusal(error, stream)),
        _ => Err(Failure::NoId),
    }
}

/// Whether this is an entry id: milliseconds and a number.
fn is_id(text: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = text.splitn(2, |byte| *byte == b'-');
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number)
}

/// Whether the response is from a read-only server, for example after a failover.
pub(super) fn is_read_only(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == READ_ONLY)
}

fn refusal(error: &ServerError, stream: &str) -> Failure {
    let detail = error.details().unwrap_or_default().to_owned();
    match error.code() {
        "WRONGTYPE" => Failure::WrongType(stream.to_owned()),
        "OOM" => Failure::Full(detail),
        // Before the login Redis limits the size of commands.
        "ERR" if detail.contains("unauthenticated") => Failure::Login(detail),
        "NOAUTH" | "NOPERM" | "WRONGPASS" => Failure::Login(detail),
        code @ ("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")
            if code != "CLUSTERDOWN" || detail.contains("slot not served") =>
        {
            Failure::Elsewhere {
                stream: stream.to_owned(),
                code: code.to_owned(),
                detail,
            }
        }
        code => Failure::Refused {
            code: code.to_owned(),
            detail,
        },
    }
}

fn refusal_type(code: &str) -> &'static str {
    match code {
        "LOADING" => "loading",
        READ_ONLY => "read_only",
        "BUSY" => "busy",
        "MISCONF" => "full",
        "NOAUTH" | "NOPERM" | "WRONGPASS" => "login",
        _ => "refused",
    }
}

fn link_type(error: &RedisError) -> &'static str {
    match error.kind() {
        ErrorKind::AuthenticationFailed => "login",
        _ if tls::is_at_fault(error) => "tls",
        _ if error.is_timeout() => "timeout",
        _ => match error.code() {
            Some(code) => refusal_type(code),
            None => "connect",
        },
    }
}
