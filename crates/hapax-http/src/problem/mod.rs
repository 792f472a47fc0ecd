//! Problems: error responses in `application/problem+json` (RFC 9457).
//!
//! A [`Problem`] is raised by a handler or by a layer. It contains a stable [`Code`], whether a
//! retry can help, and the request id. It never contains internal causes; they are logged with the
//! same id.
//!
//! A problem is carried in the response's extensions until a layer that knows the request id writes
//! the body, so handlers need not know the id.

mod code;
mod from;
mod render;

use std::{borrow::Cow, time::Duration};

use axum::response::{IntoResponse, Response};
use hapax::{sink::BoxError, store::StoreError};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub use code::*;
pub use from::ConflictOn;
pub(crate) use render::{
    Finality, IfStored, InPhases, is_conflict, is_store_failure, settle, unfinished, unwritten,
    write_out, write_out_as,
};

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
    /// The code of another protocol, which the document shows instead of the own one.
    shown_as: Option<&'static str>,
    /// The member `retry_after` of the document, in seconds.
    retry_after: Option<u64>,
    /// Members that the documents of some codes have in addition.
    more: Vec<(&'static str, String)>,
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
            shown_as: None,
            retry_after: None,
            more: Vec::new(),
            headers: HeaderMap::new(),
            source: None,
        }))
    }

    /// 400 `VALIDATION.member`: `member` of the request is not valid, and why.
    pub fn invalid(
        member: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(MEMBER_INVALID).detail(detail).member(member)
    }

    /// 404 `NOT_FOUND`: the object does not exist, or belongs to another tenant.
    pub fn not_found() -> Self {
        Self::new(NOT_FOUND)
    }

    /// 500 `TRANSIENT.internal`. The cause is logged and not shown.
    pub fn internal(source: impl Into<BoxError>) -> Self {
        Self::new(INTERNAL)
            .detail("nothing was changed; try again")
            .caused_by(source)
    }

    /// Sets the detail of this occurrence, for people.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Names the member of the request that is not valid.
    #[must_use]
    pub fn member(mut self, member: impl Into<Cow<'static, str>>) -> Self {
        self.0.member = Some(member.into());
        self
    }

    /// Adds a text as a member of the document, with a name that no other member has.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.more.push((name, value.into()));
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

    /// Sets `Retry-After`: whole seconds, rounded up, at least one.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        let value = HeaderValue::from(whole_seconds(wait));
        self.0.headers.insert(http::header::RETRY_AFTER, value);
        self
    }

    /// Adds the seconds of [`retry_after`](Self::retry_after) to the document as a member.
    #[must_use]
    pub(crate) fn retry_after_member(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(whole_seconds(wait));
        self
    }

    /// Shows the code of another protocol in the document. Its `type`, its title and the log keep
    /// those of the own code.
    #[must_use]
    pub(crate) fn shown_as(mut self, code: Option<&'static str>) -> Self {
        self.0.shown_as = code;
        self
    }

    /// Sets the cause, for the log.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The member that is not valid.
    pub fn named_member(&self) -> Option<&str> {
        self.0.member.as_deref()
    }

    /// The store's error that caused it, if any.
    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// The cause; without one, the problem as text.
    fn into_source(self) -> BoxError {
        let inner = *self.0;
        inner.source.unwrap_or_else(|| inner.detail.into())
    }

    /// The status of the response.
    pub fn status_code(&self) -> StatusCode {
        self.0.status
    }
}

/// The value of `Retry-After`: seconds, rounded up, at least one.
fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        render::with_problem(self)
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Problem {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <render::Document as utoipa::PartialSchema>::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Problem {}

/// Responds with 404 as a problem. Pass it to `Router::fallback`.
pub async fn not_found() -> Problem {
    Problem::not_found()
}

/// Responds with 405 as a problem. Pass it to `Router::method_not_allowed_fallback`.
pub async fn method_not_allowed() -> Problem {
    Problem::new(METHOD)
}
