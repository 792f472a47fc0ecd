//! Exit codes of `hapax send`, and the advice for each.
//!
//! The class of the problem's `code` decides; without a code the status does.

use http::StatusCode;

use crate::output::NOT_FOUND;

/// A category of unsuccessful responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Category {
    /// The exit code.
    pub(super) code: u8,
    /// The advice to the user.
    pub(super) hint: &'static str,
    /// Whether the advice is to run the same command again.
    pub(super) is_again: bool,
}

impl Category {
    /// The category of a response that is stored under the key: the same command would only receive
    /// it again.
    pub(super) fn of_stored(self) -> Self {
        if !self.is_again {
            return self;
        }
        Self {
            hint: "this response is stored: to have the request executed again, use another key",
            is_again: false,
            ..self
        }
    }
}

const VALIDATION: Category = of(10, "fix the request");
const AUTH: Category = again(
    11,
    "sign in again, or ask for access, then run the same command again",
);
const CONFLICT: Category = of(12, "look at what is there, then decide");
const RATE_LIMIT: Category = again(13, "wait, then run the same command again");
const DEPENDENCY: Category = again(14, "later, run the same command again");
const TRANSIENT: Category = again(15, "run the same command again");
const REFUSED: Category = of(17, "the request was understood and refused");
const INTERNAL: Category = of(
    19,
    "report it to the operators of the service: it will fail again",
);
const OTHER: Category = of(18, "this is neither a success nor an error");
const ABSENT: Category = of(NOT_FOUND, "there is nothing under this address");

/// No response was received.
pub(super) const NETWORK: Category = again(16, "run the same command again");

const fn of(code: u8, hint: &'static str) -> Category {
    Category {
        code,
        hint,
        is_again: false,
    }
}

const fn again(code: u8, hint: &'static str) -> Category {
    Category {
        code,
        hint,
        is_again: true,
    }
}

/// The category of a response; `None` for a success.
pub(super) fn category(status: StatusCode, code: Option<&str>) -> Option<Category> {
    if status.is_success() {
        return None;
    }
    let class = code.and_then(|code| code.split('.').next());
    let by_class = class.and_then(|class| match class {
        "VALIDATION" => Some(VALIDATION),
        "AUTH" => Some(AUTH),
        "CONFLICT" => Some(CONFLICT),
        "RATE_LIMIT" => Some(RATE_LIMIT),
        "DEPENDENCY" | "UNAVAILABLE" => Some(DEPENDENCY),
        "TRANSIENT" => Some(TRANSIENT),
        "INTERNAL" => Some(INTERNAL),
        "NOT_FOUND" => Some(ABSENT),
        _ => None,
    });
    Some(by_class.unwrap_or_else(|| by_status(status)))
}

fn by_status(status: StatusCode) -> Category {
    match status.as_u16() {
        401 | 403 | 407 => AUTH,
        404 => ABSENT,
        408 | 425 | 500..=502 | 505..=599 => TRANSIENT,
        409 | 410 | 412 | 428 => CONFLICT,
        429 => RATE_LIMIT,
        503 | 504 => DEPENDENCY,
        400 | 405 | 406 | 411 | 413..=417 | 421 | 422 | 426 | 431 => VALIDATION,
        402 | 418..=499 => REFUSED,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, code: Option<&str>, expected: Option<u8>) {
        let status = StatusCode::from_u16(status).unwrap();
        let found = category(status, code).map(|it| it.code);
        assert_eq!(found, expected, "{status} {code:?}");
    }

    #[test]
    fn each_category_has_an_exit_code_of_its_own() {
        for (status, code) in [
            (400, 10),
            (401, 11),
            (409, 12),
            (429, 13),
            (503, 14),
            (500, 15),
            (402, 17),
            (302, 18),
            (404, 3),
        ] {
            check(status, None, Some(code));
        }
        check(201, None, None);
    }

    #[test]
    fn a_stored_response_is_not_asked_for_again() {
        let stored = DEPENDENCY.of_stored();
        assert!(!stored.is_again && stored.hint.contains("another key"));
        assert_eq!(stored.code, DEPENDENCY.code);
        assert_eq!(CONFLICT.of_stored(), CONFLICT);
    }

    #[test]
    fn the_class_of_a_problem_wins_over_its_status() {
        check(409, Some("VALIDATION.member"), Some(10));
        check(500, Some("DEPENDENCY.timeout"), Some(14));
        check(500, Some("INTERNAL.statement"), Some(19));
        check(402, Some("PROVIDER.card.declined"), Some(17));
        check(200, Some("TRANSIENT.internal"), None);
    }
}
