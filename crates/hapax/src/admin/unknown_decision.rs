//! Decision about an unknown outcome, by the version of the gateway's record.
//!
//! A retry that is refused changes the epoch of the key and not the record, so that clients that
//! keep retrying do not prevent a decision. The key itself is decided under the version that it has
//! when the decision arrives: a retry that takes the key at the same moment fences the decision,
//! and the decision fences the retry. The same decision of the same operator can be sent again.

use bytes::Bytes;

use super::{
    Actor, AdminError, AuditAdmin, AuditEntry, AuditFilter, KeyAdmin, KeyDecision, KeyOutcome,
    KeyRecord, UnknownOutcome, check_reason,
};
use crate::{
    clock::Timestamp, idempotency::StoredResponse, key::short_hash, keyring::ENCRYPTED_UNDER,
};

/// The action in the audit log.
const ACTION: &str = "decide";
/// Entries of the audit log about one key that are read.
const ENTRIES: usize = 20;
/// Maximum number of headers of a response that an operator gives.
pub const GIVEN_HEADERS_MAX: usize = 64;
/// Maximum length of one of its headers in bytes, with its name.
pub const GIVEN_HEADER_BYTES_MAX: usize = 8 * 1024;

/// Headers that belong to a connection, that the server sets, or that this library reserves.
const NOT_GIVEN: [&str; 14] = [
    "connection",
    "content-length",
    "date",
    "idempotency-key",
    "idempotency-status",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    ENCRYPTED_UNDER,
];

/// Decides about an unknown outcome whose record still has this version
/// ([`UnknownOutcome::version`], which is the `version` of the decision).
///
/// # Errors
/// Fails like [`KeyAdmin::decide_key`]: `NotFound` if the key does not exist or belongs to another
/// tenant; `Conflict` if a gateway has the key at this moment, if the request was sent again, or if
/// it was decided in another way; `Invalid` without a reason, or if the response is not valid. A
/// decision that was already made by this actor, with this reason, succeeds again.
pub async fn decide_unknown<A: KeyAdmin + AuditAdmin + ?Sized>(
    admin: &A,
    actor: &Actor,
    decision: &KeyDecision,
) -> Result<(), AdminError> {
    check_reason(&decision.reason)?;
    check_version(&decision.version)?;
    if let KeyOutcome::Happened(response) = &decision.outcome {
        check_given(response)?;
    }
    let tenant = decision.tenant.as_deref();
    let found = admin.key(actor, tenant, &decision.operation, &decision.key);
    let found = match found.await {
        Ok(found) => found,
        Err(missing @ AdminError::NotFound { .. }) => {
            let was_decided = was_decided(admin, actor, decision, None).await?;
            return if was_decided { Ok(()) } else { Err(missing) };
        }
        Err(error) => return Err(error),
    };
    let seen = UnknownOutcome::of(found.summary.clone(), Timestamp::default());
    let refusal = if seen.is_some_and(|it| it.version == decision.version) {
        let current = KeyDecision {
            tenant: Some(found.summary.tenant.clone()),
            version: found.version.clone(),
            ..decision.clone()
        };
        match admin.decide_key(actor, &current).await {
            Err(refusal @ AdminError::Conflict { .. }) => refusal,
            decided => return decided,
        }
    } else {
        let what = "the outcome is not unknown any more, or the request was sent again: look at it \
                    again";
        AdminError::conflict(what)
    };
    // The same decision may have been sent twice at the same moment.
    if was_decided(admin, actor, decision, Some(&found)).await? {
        return Ok(());
    }
    Err(refusal)
}

/// The response that an operator gives as text. Names become lower case; values are Latin-1, as in
/// HTTP.
///
/// # Errors
/// `Invalid` with the field that is not valid, as [`check_given`].
pub fn given_response<'a>(
    status: u16,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: Bytes,
) -> Result<StoredResponse, AdminError> {
    let header = |(name, value): (&str, &str)| {
        let bytes = value.trim().chars().map(|c| u8::try_from(c).ok());
        let bytes: Option<Vec<u8>> = bytes.collect();
        let problem = || {
            let shown = name.escape_debug();
            AdminError::invalid("headers", format!("must be Latin-1: {shown}"))
        };
        let value = Bytes::from(bytes.ok_or_else(problem)?);
        Ok((name.trim().to_ascii_lowercase(), value))
    };
    let headers = headers.into_iter().map(header);
    let response = StoredResponse {
        status,
        headers: headers.collect::<Result<_, AdminError>>()?,
        body,
    };
    check_given(&response)?;
    Ok(response)
}

/// Checks a response that an operator gives.
///
/// # Errors
/// `Invalid` with the field that is not valid.
pub fn check_given(response: &StoredResponse) -> Result<(), AdminError> {
    let wrong = |problem: String| Err(AdminError::invalid("headers", problem));
    if response.headers.len() > GIVEN_HEADERS_MAX {
        return wrong(format!("must be at most {GIVEN_HEADERS_MAX}"));
    }
    for (name, value) in &response.headers {
        let shown = name.escape_debug();
        if !is_name(name) {
            return wrong(format!("must have names in lower case, got {shown:?}"));
        }
        if NOT_GIVEN.contains(&name.as_str()) {
            return wrong(format!("must not contain {name}, which the gateway sets"));
        }
        let is_plain = |byte: &u8| matches!(*byte, b'\t' | 0x20..=0x7e | 0x80..);
        if !value.iter().all(is_plain) {
            return wrong(format!("must not contain control characters: {name}"));
        }
        if name.len() + value.len() > GIVEN_HEADER_BYTES_MAX {
            return wrong(format!(
                "must be at most {GIVEN_HEADER_BYTES_MAX} bytes long: {name}"
            ));
        }
    }
    if matches!(response.status, 204 | 205 | 304) && !response.body.is_empty() {
        let problem = format!("must be empty for the status {}", response.status);
        return Err(AdminError::invalid("body", problem));
    }
    Ok(())
}

fn check_version(version: &str) -> Result<(), AdminError> {
    let parts = version.split_once('.');
    let is_valid = parts.is_some_and(|(claimed_at, hash)| {
        claimed_at.parse::<i64>().is_ok() && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    if is_valid {
        return Ok(());
    }
    let problem = "must be the `version` of an unknown outcome";
    Err(AdminError::invalid("version", problem))
}

/// Whether a name is a token of HTTP in lower case.
fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    !name.is_empty() && name.bytes().all(is_token)
}

/// Whether this actor has already made this decision, with this reason. `now` is the key, if there
/// is one.
async fn was_decided<A: KeyAdmin + AuditAdmin + ?Sized>(
    admin: &A,
    actor: &Actor,
    decision: &KeyDecision,
    now: Option<&KeyRecord>,
) -> Result<bool, AdminError> {
    let is_over = match (&decision.outcome, now) {
        (KeyOutcome::Happened(given), Some(key)) => is_stored(key, given),
        (KeyOutcome::Happened(_), None) => false,
        (KeyOutcome::DidNotHappen, key) => key.is_none_or(|key| is_later(key, &decision.version)),
    };
    if !is_over {
        return Ok(false);
    }
    let hash = short_hash(&decision.key);
    let filter = AuditFilter {
        actor: Some(actor.name.clone()),
        action: Some(ACTION.to_owned()),
        object: Some(format!("key {} #{hash}", decision.operation)),
    };
    let entries = admin.audit_log(actor, &filter, None, ENTRIES).await?;
    let is_same = |entry: &AuditEntry| {
        let tenant = decision.tenant.as_deref();
        entry.outcome == "done"
            && entry.detail["record"] == decision.version.as_str()
            && entry.detail["outcome"] == decision.outcome.as_str()
            && entry.detail["reason"] == decision.reason.as_str()
            && tenant.is_none_or(|tenant| entry.detail["tenant"] == tenant)
    };
    Ok(entries.items.iter().any(is_same))
}

/// Whether a key has exactly this response.
fn is_stored(key: &KeyRecord, given: &StoredResponse) -> bool {
    let latin = |value: &[u8]| -> String { value.iter().map(|byte| char::from(*byte)).collect() };
    let headers = given.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), latin(value)));
    let body = key.body.as_ref().map(|body| &body.raw);
    key.summary.status == Some(given.status)
        && body == Some(&given.body)
        && key.headers.iter().cloned().eq(headers)
}

/// Whether a key was claimed after the request of this version.
fn is_later(key: &KeyRecord, version: &str) -> bool {
    let claimed_at = version.split_once('.').and_then(|(at, _)| at.parse().ok());
    claimed_at.is_some_and(|at: i64| key.summary.created_at.as_millis() > at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_given_as_text() {
        let headers = [("Content-Type", " text/plain "), ("x-name", "Zo\u{eb}")];
        let given = given_response(200, headers, Bytes::from_static(b"hi")).unwrap();
        let expected = [
            ("content-type".to_owned(), Bytes::from_static(b"text/plain")),
            ("x-name".to_owned(), Bytes::from_static(b"Zo\xeb")),
        ];
        assert_eq!(given.headers, expected);
        let odd = given_response(200, [("x-a", "\u{20ac}")], Bytes::new());
        assert!(matches!(odd, Err(AdminError::Invalid { .. })));
    }

    #[test]
    fn a_response_that_no_server_could_send_is_refused() {
        check(200, &[("content-type", "application/json")], "{}", None);
        check(200, &[("x-a", "b\u{e9}\tc")], "", None);
        check(200, &[("Content-Type", "a")], "", Some("headers"));
        check(200, &[("x a", "a")], "", Some("headers"));
        check(200, &[("", "a")], "", Some("headers"));
        check(200, &[("x-a", "a\r\nx-b: c")], "", Some("headers"));
        check(200, &[("content-length", "7")], "", Some("headers"));
        check(
            200,
            &[("transfer-encoding", "chunked")],
            "",
            Some("headers"),
        );
        check(200, &[(ENCRYPTED_UNDER, "k")], "", Some("headers"));
        check(
            200,
            &[("x-a", "a"); GIVEN_HEADERS_MAX + 1],
            "",
            Some("headers"),
        );
        let long = "x".repeat(GIVEN_HEADER_BYTES_MAX);
        check(200, &[("x-a", &long)], "", Some("headers"));
        check(204, &[], "{}", Some("body"));
        check(204, &[], "", None);
    }

    #[test]
    fn a_version_is_a_time_and_a_hash() {
        assert!(check_version("1764294000000.0123456789abcdef").is_ok());
        for text in ["", "1", "x.ab", "1.xyz", "1.2.3"] {
            assert!(check_version(text).is_err(), "{text:?}");
        }
    }

    #[track_caller]
    fn check(status: u16, headers: &[(&str, &str)], body: &str, expected: Option<&str>) {
        let headers = headers.iter().map(|(name, value)| {
            let value = Bytes::copy_from_slice(value.as_bytes());
            ((*name).to_owned(), value)
        });
        let response = StoredResponse {
            status,
            headers: headers.collect(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let field = match check_given(&response) {
            Err(AdminError::Invalid { field, .. }) => Some(field),
            Ok(()) => None,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(field.as_deref(), expected, "{response:?}");
    }
}
