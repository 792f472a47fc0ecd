//! Profiles: what a specification requires of a server, as data, with its source.
//!
//! A rule that a specification does not state is `None` here. The checks then report what the
//! server did, and do not judge it.

mod known;

use serde::Serialize;

use crate::http::Response;

pub(crate) use known::PROFILES;

/// The rules of one specification.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Where the rules come from: title, URL, and the date of the version that was read.
    pub(crate) source: Source,
    pub(crate) key: KeyForm,
    /// The response to a request without a key: its statuses and code.
    pub(crate) missing: Missing,
    /// The response to a key that is not valid.
    pub(crate) invalid: Option<Refusal>,
    /// Whether a quoted key and the bare one are the same key.
    pub(crate) quoted_is_bare: Option<bool>,
    pub(crate) equality: Equality,
    pub(crate) mismatch: Refusal,
    /// Whether the refusal of another payload may have a `Retry-After`.
    pub(crate) mismatch_retry_after: Option<bool>,
    /// Whether another payload is a mismatch even while the first request runs.
    pub(crate) mismatch_while_running: Option<bool>,
    pub(crate) in_flight: Option<InFlight>,
    /// Whether a 5xx response is stored under the key.
    pub(crate) keeps_server_errors: Option<bool>,
    /// Whether a refusal by the business rules (402, 404, 409, 410, 422) is stored under the key.
    pub(crate) keeps_refusals: Option<bool>,
    /// Whether a response is stored that says that the request itself was wrong (400, 401, 403, 413, 415
    /// and so on), or came at the wrong moment (429).
    pub(crate) keeps_caller_errors: Option<bool>,
    /// Whether a replay has the header fields of the first response.
    pub(crate) replays_headers: Option<bool>,
    /// Whether a replay repeats header fields that belong to one response: `Date` and `Set-Cookie`.
    pub(crate) replays_cookies_and_date: Option<bool>,
    /// Whether a key ends with its retention.
    pub(crate) expires: Option<bool>,
    /// Whether query, path and content type belong to the payload.
    pub(crate) compares_whole_requests: Option<bool>,
    /// Whether the same key of another principal is another key.
    pub(crate) scoped_by_principal: Option<bool>,
    /// Whether the same key of another operation is another key.
    pub(crate) scoped_by_operation: Option<bool>,
    /// The member that a replay adds to its JSON body.
    pub(crate) replay_member: Option<&'static str>,
    /// The header fields that mark a replay or echo the key. They may differ from the first response.
    pub(crate) markers: &'static [&'static str],
}

/// A source of rules.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Source {
    pub(crate) title: &'static str,
    pub(crate) url: &'static str,
    /// The date or the version of the text.
    pub(crate) version: &'static str,
}

/// The form of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// Any string of visible ASCII characters.
    Text,
    /// A string of a structured field, in quotes.
    Quoted,
    /// A UUID of any version.
    Uuid,
    /// A UUID of version 7.
    UuidV7,
}

/// What a server does with a request that has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is refused.
    Refused(Refusal),
    /// It is executed without protection.
    Optional,
    /// Both are allowed: each operation decides.
    PerOperation(Refusal),
}

/// A refusal: one of these statuses, and a code in the body if the specification has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The statuses that the specification allows; if there is none, every 4xx status.
    pub(crate) statuses: &'static [u16],
    pub(crate) code: Option<&'static str>,
}

/// The refusal of a request whose key is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) refusal: Refusal,
    pub(crate) retry_after: bool,
}

/// Which payloads are the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    /// The same bytes.
    Raw,
    /// The same JSON value; numbers as they are written.
    CanonicalJson,
    /// The same canonical form by RFC 8785, which writes numbers as ECMAScript does: 1 and 1.0 are the
    /// same number, and so are 2^53 and 2^53 + 1.
    Rfc8785,
    /// The same JSON value; numbers by value.
    JsonByValue,
    /// The specification does not say, or leaves it to the server.
    Unstated,
}

/// A profile, as `--list` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileDescription {
    /// The name for `--profile`.
    pub name: &'static str,
    /// The specification.
    pub title: &'static str,
    /// Its address.
    pub source: &'static str,
    /// The date or version of the text that the rules were taken from.
    pub version: &'static str,
}

/// Returns all profiles.
pub fn profiles() -> Vec<ProfileDescription> {
    PROFILES
        .iter()
        .map(|it| ProfileDescription {
            name: it.name,
            title: it.title,
            source: it.source.url,
            version: it.source.version,
        })
        .collect()
}

impl Refusal {
    /// Whether a response is this refusal.
    pub(crate) fn allows(&self, answer: &Response) -> bool {
        self.has_status(answer) && self.code.is_none_or(|code| answer.has_text(code))
    }

    fn has_status(&self, answer: &Response) -> bool {
        if self.statuses.is_empty() {
            (400..500).contains(&answer.status)
        } else {
            self.statuses.contains(&answer.status)
        }
    }

    /// Returns what is expected, for messages.
    pub(crate) fn describe(&self) -> String {
        let statuses: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        let statuses = if statuses.is_empty() {
            "4xx".to_owned()
        } else {
            statuses.join(" or ")
        };
        match self.code {
            Some(code) => format!("{statuses} with the code {code}"),
            None => statuses,
        }
    }
}

impl Profile {
    /// Returns the profile of this name.
    ///
    /// # Errors
    /// Fails with the names that exist.
    pub(crate) fn named(name: &str) -> Result<&'static Self, String> {
        PROFILES.iter().find(|it| it.name == name).ok_or_else(|| {
            let names: Vec<&str> = PROFILES.iter().map(|it| it.name).collect();
            format!("expected one of {}, got {name:?}", names.join(", "))
        })
    }

    /// Whether a response says that the key belongs to another payload.
    ///
    /// If a mismatch and a request in flight have the same status, the code distinguishes them, and
    /// without a code `Retry-After` does.
    pub(crate) fn is_mismatch(&self, answer: &Response) -> bool {
        self.mismatch.allows(answer) && !self.looks_in_flight(answer)
    }

    /// Whether a response says that the key is still running.
    pub(crate) fn is_in_flight(&self, answer: &Response) -> bool {
        let Some(in_flight) = &self.in_flight else {
            return matches!(answer.status, 409 | 425) && answer.header("retry-after").is_some();
        };
        in_flight.refusal.has_status(answer)
            && (!self.shares_status() || self.looks_in_flight(answer))
    }

    fn shares_status(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|it| {
            // Without statuses, any 4xx status is allowed.
            let (ours, theirs) = (it.refusal.statuses, self.mismatch.statuses);
            ours.is_empty()
                || theirs.is_empty()
                || ours.iter().any(|status| theirs.contains(status))
        })
    }

    fn looks_in_flight(&self, answer: &Response) -> bool {
        let Some(in_flight) = &self.in_flight else {
            return false;
        };
        if !self.shares_status() || !in_flight.refusal.has_status(answer) {
            return false;
        }
        match in_flight.refusal.code {
            Some(code) => answer.has_text(code),
            None => answer.header("retry-after").is_some(),
        }
    }

    /// Whether a response with this status is stored, if the specification says so.
    pub(crate) fn keeps(&self, status: u16) -> Option<bool> {
        match status {
            200..400 => Some(true),
            402 | 404 | 409 | 410 | 422 => self.keeps_refusals,
            400..500 => self.keeps_caller_errors,
            _ => self.keeps_server_errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::Field;

    fn answer(status: u16, code: &str, retry_after: bool) -> Response {
        let fields = retry_after.then(|| Field {
            name: "Retry-After".to_owned(),
            value: b"1".to_vec(),
        });
        Response {
            status,
            fields: fields.into_iter().collect(),
            body: serde_json::json!({ "code": code }).to_string().into_bytes(),
            elapsed: Duration::ZERO,
        }
    }

    fn profile(name: &str) -> &'static Profile {
        Profile::named(name).expect("a known profile")
    }

    #[test]
    fn a_shared_status_is_told_apart_by_the_code() {
        let hapax = profile("hapax");
        let mismatch = answer(409, "CONFLICT.idempotency.payload_mismatch", false);
        let running = answer(409, "CONFLICT.idempotency.in_progress", true);
        assert!(hapax.is_mismatch(&mismatch) && !hapax.is_in_flight(&mismatch));
        assert!(hapax.is_in_flight(&running) && !hapax.is_mismatch(&running));
        let other = answer(409, "CONFLICT.stock", false);
        assert!(!hapax.is_mismatch(&other) && !hapax.is_in_flight(&other));
    }

    #[test]
    fn other_statuses_are_told_apart_by_themselves() {
        let ietf = profile("ietf");
        assert!(ietf.is_mismatch(&answer(422, "x", false)));
        assert!(ietf.is_in_flight(&answer(409, "x", false)));
        assert!(!ietf.is_mismatch(&answer(409, "x", false)));
    }

    #[test]
    fn without_statuses_the_code_decides() {
        let adcp = profile("adcp");
        let running = answer(409, "IDEMPOTENCY_IN_FLIGHT", true);
        let mismatch = answer(409, "IDEMPOTENCY_CONFLICT", false);
        assert!(adcp.is_in_flight(&running) && !adcp.is_mismatch(&running));
        assert!(adcp.is_mismatch(&mismatch) && !adcp.is_in_flight(&mismatch));
        assert!(!adcp.is_in_flight(&answer(400, "INVALID", false)));
    }

    #[test]
    fn an_unknown_profile_is_named() {
        let error = Profile::named("iets").expect_err("no such profile");
        assert!(error.contains("\"iets\""), "{error}");
    }

    #[test]
    fn every_profile_has_a_source_and_a_name_of_its_own() {
        for (index, it) in PROFILES.iter().enumerate() {
            assert!(it.source.url.starts_with("https://"), "{}", it.name);
            assert!(PROFILES[..index].iter().all(|other| other.name != it.name));
        }
    }
}
