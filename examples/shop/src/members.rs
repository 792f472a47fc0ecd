//! Validation of the members of a request.
//!
//! Each function checks one value. If it is not valid, the function returns a problem with status
//! 400 that names the member. Valid values can be stored in rows and events.

use hapax_http::problem::Problem;
use serde::Deserialize;

use crate::{
    money::{AMOUNTS, is_currency},
    providers::CARDS,
};

/// The default number of rows of a page.
pub(crate) const LIMIT: u32 = 50;
/// The most rows of a page.
pub(crate) const LIMIT_MAX: u32 = 200;

/// The query of a list: the id after which it continues, and the number of rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub(crate) after: Option<String>,
    pub(crate) limit: Option<u32>,
}

/// The query of a route without query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// Checks an amount in minor units.
pub(crate) fn amount(value: i64) -> Result<(), Problem> {
    let (least, most) = AMOUNTS.into_inner();
    ensure(AMOUNTS.contains(&value), "amount", || {
        format!("amount must be a whole number of minor units from {least} to {most}")
    })
}

/// Checks a currency code.
pub(crate) fn currency(code: &str) -> Result<(), Problem> {
    ensure(is_currency(code), "currency", || {
        "currency must be an active ISO 4217 code in capitals, such as EUR".to_owned()
    })
}

/// Checks that the provider knows the card.
pub(crate) fn card(token: &str) -> Result<(), Problem> {
    ensure(CARDS.contains(&token), "card", || {
        format!("card must be one of {}", CARDS.join(", "))
    })
}

/// Checks a name of 1 to 64 characters `A-Z a-z 0-9 _ -`.
pub(crate) fn name(member: &'static str, value: &str) -> Result<(), Problem> {
    ensure(is_name(value), member, || {
        format!("{member} must be 1 to 64 characters A-Z a-z 0-9 _ -")
    })
}

/// Checks the id in a path; responds 404 if no object can have it.
pub(crate) fn id(value: &str) -> Result<(), Problem> {
    if is_name(value) {
        Ok(())
    } else {
        Err(Problem::not_found())
    }
}

/// Checks a text of 1 to `most` characters without control characters.
pub(crate) fn line(member: &'static str, value: &str, most: usize) -> Result<(), Problem> {
    let length = value.chars().count();
    let fits = (1..=most).contains(&length) && !value.chars().any(char::is_control);
    ensure(fits, member, || {
        format!("{member} must be one line of 1 to {most} characters")
    })
}

/// Checks a text of at most `most` characters without U+0000, which PostgreSQL cannot store.
pub(crate) fn text(member: &'static str, value: &str, most: usize) -> Result<(), Problem> {
    let fits = value.chars().count() <= most && !value.contains('\0');
    ensure(fits, member, || {
        format!("{member} must have at most {most} characters, none of them U+0000")
    })
}

/// Checks an e-mail address in the plain ASCII form that all mail servers accept.
pub(crate) fn email(value: &str) -> Result<(), Problem> {
    ensure(is_email(value), "email", || {
        "email must be an address such as ann@example.org".to_owned()
    })
}

/// Checks the id after which a list continues; empty for the first page.
pub(crate) fn after(value: Option<String>, prefix: &str) -> Result<String, Problem> {
    let value = value.unwrap_or_default();
    let id = value
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .filter(|id| id.len() == 36 && uuid::Uuid::try_parse(id).is_ok());
    ensure(value.is_empty() || id.is_some(), "after", || {
        "after must be the value of next from the previous page".to_owned()
    })?;
    Ok(value)
}

/// Checks the number of rows of a page.
pub(crate) fn limit(value: Option<u32>, default: u32) -> Result<u32, Problem> {
    let limit = value.unwrap_or(default);
    ensure((1..=LIMIT_MAX).contains(&limit), "limit", || {
        format!("limit must be a whole number from 1 to {LIMIT_MAX}")
    })?;
    Ok(limit)
}

fn is_name(value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&value.len()) && value.bytes().all(plain)
}

fn ensure(
    fits: bool,
    member: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Problem> {
    if fits {
        Ok(())
    } else {
        Err(Problem::invalid(member, detail()))
    }
}

fn is_email(value: &str) -> bool {
    const LOCAL: &[u8] = b"!#$%&'*+-/=?^_`{|}~.";
    let Some((local, domain)) = value.rsplit_once('@') else {
        return false;
    };
    let dots = |text: &str| !text.starts_with('.') && !text.ends_with('.') && !text.contains("..");
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    value.len() <= 254
        && (1..=64).contains(&local.len())
        && local
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || LOCAL.contains(&byte))
        && dots(local)
        && domain.contains('.')
        && domain.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain() {
        let long_local = format!("{}@b.org", "a".repeat(65));
        let long_domain = format!("a@{}.org", "b".repeat(64));
        for good in ["ann@x.org", "Ann.B+shop@mail.example.co", "o'hara@x-y.io"] {
            assert!(email(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "ann",
            "@x.org",
            "ann@",
            "ann@x",
            "a b@x.org",
            "ann@x..org",
            ".a@x.org",
            "a.@x.org",
            "a@-x.org",
            "a@b@x.org",
            "ann@x.org\r\nBcc: b@y.org",
            "ann@x.org>",
            "<a@x.org",
            "j\u{f6}rg@x.org",
            "a@x.org.",
            &long_local,
            &long_domain,
        ] {
            assert!(email(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_amount_keeps_its_bounds() {
        assert!(amount(1).is_ok() && amount(99_999_999).is_ok());
        assert!(amount(0).is_err() && amount(-1).is_err() && amount(100_000_000).is_err());
    }

    #[test]
    fn a_line_has_no_line_break() {
        assert!(line("name", "Ann", 3).is_ok());
        for bad in ["", "Anna", "A\nB", "A\u{7f}"] {
            assert!(line("name", bad, 3).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_page_has_1_to_200_rows() {
        assert_eq!(limit(None, LIMIT).ok(), Some(50));
        assert!(limit(Some(200), LIMIT).is_ok());
        assert!(limit(Some(0), LIMIT).is_err() && limit(Some(201), LIMIT).is_err());
    }
}
