//! Tests from outside whether an HTTP server keeps the promise of `Idempotency-Key`.
//!
//! The probe sends requests to one or more operations of a server: first requests, retries, races,
//! requests with another payload, requests whose response is cut off, and requests around a restart.
//! From the responses, and from a count of the effects if the plan has one, it judges each check
//! against a [profile](crate::profiles): the rules of one specification, with their source. A check
//! that could not be judged is reported as unknown, never as passed.
//!
//! The crate uses no other crate of Hapax, and it speaks HTTP/1.1 itself: it sends requests that no
//! HTTP client would send, and compares responses byte by byte.

mod plan;
mod http;
mod mask;
mod shell;
mod effects;
mod json_text;
mod json_value;
mod profile;
mod verdict;
mod subject;
mod calibration;
mod checks;
mod run;
mod report;
mod arguments;

pub use arguments::Arguments;
pub use checks::{CheckDescription, checks};
pub use plan::{Plan, PlanError};
pub use profile::{ProfileDescription, profiles};
pub use report::{Finding, Report, ReportFormat};
pub use run::{Progress, run};
pub use verdict::Verdict;
