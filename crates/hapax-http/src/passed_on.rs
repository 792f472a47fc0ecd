//! Responses of another system that a handler passes on, as a gateway does.
//!
//! A handler inserts these marks into the extensions of its response.

/// Passes an error response on as it is. Without this mark, the layer replaces an error that has no
/// content type, or that is plain text, by a problem.
#[derive(Clone, Copy, Debug)]
pub struct Verbatim;

/// Keeps the key of a phased request in progress, under every status of the response. The lease
/// ends, so that the next request with the key resumes it at its recovery point.
///
/// This is for a handler that does not know whether its request has had an effect. The mark takes
/// precedence over a [`Disposition`](crate::Disposition). It has no effect in an operation that is not
/// phased.
#[derive(Clone, Copy, Debug)]
pub struct KeepInProgress;
