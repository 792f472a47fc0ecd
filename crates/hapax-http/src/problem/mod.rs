//! Errors as callers see them: `application/problem+json` (RFC 9457).
//!
//! A [`Problem`] is what a handler raises and what the layers answer. It says a
//! stable [`Code`], whether a retry can help, and the request's id; it never
//! says what went wrong inside, that is logged under the same id.
//!
//! A problem travels in the response's extensions until a layer that knows the
//! request's id writes it out, so that handlers need not know it.

mod code;
mod from;
mod render;

use std::{borrow::Cow, time::Duration};

use axum::response::{IntoResponse, Response};
use hapax::{sink::BoxError, store::StoreError};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub use code::*;
pub use from::ConflictOn;
pub(crate) use render::{InPhases, settle, unfinished, unwritten, write_out};

/// An error for the caller.
///
/// ```
/// use hapax_http::problem::{self, Problem};
///
/// const EXCEEDS: problem::Code =
///     problem::Code::new("CONFLICT.refund.exceeds_charge", 409, "The refund exceeds the charge");
///
/// fn check(amount: u64, charged: u64) -> Result<(), Problem> {
///     if amount == 0 {
///         return Err(Problem::invalid("amount", "must be at least 1"));
///     }
///     if amount > charged {
///         return Err(Problem::new(EXCEEDS).detail(format!("{charged} were charged")));
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    status: StatusCode,
    detail: Cow<'static, str>,
    member: Option<Cow<'static, str>>,
    headers: HeaderMap,
    source: Option<BoxError>,
}

impl Problem {
    /// A problem of this code, with the code's status.
    pub fn new(code: Code) -> Self {
        Self(Box::new(Inner {
            code,
            status: code.status(),
            detail: Cow::Borrowed(code.title()),
            member: None,
            headers: HeaderMap::new(),
            source: None,
        }))
    }

    /// 400 `VALIDATION.member`: `member` of the request is wrong, and how.
    pub fn invalid(
        member: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(MEMBER_INVALID).detail(detail).member(member)
    }

    /// 404 `NOT_FOUND`: there is no such thing, or it is another tenant's.
    pub fn not_found() -> Self {
        Self::new(NOT_FOUND)
    }

    /// 500 `TRANSIENT.internal`, whose cause is logged and not shown.
    pub fn internal(source: impl Into<BoxError>) -> Self {
        Self::new(INTERNAL)
            .detail("nothing was changed; try again")
            .caused_by(source)
    }

    /// Says what is wrong this time, for a person.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Names the member of the request that is wrong.
    #[must_use]
    pub fn member(mut self, member: impl Into<Cow<'static, str>>) -> Self {
        self.0.member = Some(member.into());
        self
    }

    /// Replaces the code's status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.append(name, value);
        self
    }

    /// Asks the caller to wait: whole seconds, rounded up, at least one.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let value = HeaderValue::from(seconds.max(1));
        self.0.headers.insert(http::header::RETRY_AFTER, value);
        self
    }

    /// Keeps what went wrong, for the log.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of problem it is.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The member that is wrong.
    pub fn named_member(&self) -> Option<&str> {
        self.0.member.as_deref()
    }

    /// The store's error that caused it, where one did.
    fn store_error(&self) -> Option<&StoreError> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// What caused it; itself, in words, where nothing did.
    fn into_source(self) -> BoxError {
        let inner = *self.0;
        inner.source.unwrap_or_else(|| inner.detail.into())
    }

    /// The status that it is answered with.
    pub fn status_code(&self) -> StatusCode {
        self.0.status
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        render::carry(self)
    }
}

/// Answers 404 as a problem: give it to `Router::fallback`.
#[expect(clippy::unused_async, reason = "axum's handlers are async")]
pub async fn not_found() -> Problem {
    Problem::not_found()
}

/// Answers 405 as a problem: give it to `Router::method_not_allowed_fallback`.
#[expect(clippy::unused_async, reason = "axum's handlers are async")]
pub async fn method_not_allowed() -> Problem {
    Problem::new(METHOD)
}
