//! The bugs: one deviation each, switched on by `--bug NAME`.
//!
//! The first paragraph of a variant's comment is what the server does wrong; the second one is what
//! a client sees, compared with the server without a bug. The code of a bug is at the place where
//! it acts: search for `Bug::` and its name. [`Bug::profiles`] says where a bug makes a difference.

use clap::ValueEnum as _;

use crate::profile::Profile;

/// A deviation from the promise of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Bug {
    // Replay
    /// The key is not read: every request is executed
    ///
    /// Each retry has a new `id` and a new effect; there is no mismatch and no in progress; bad
    /// values of the header are accepted, and so is a missing one.
    KeyIgnored,
    /// Responses are kept in memory only
    ///
    /// After a restart (orderly or killed) a retry is executed again; the effects are still there.
    ReplayFromMemoryOnly,
    /// Each node has separate keys
    ///
    /// A retry, a race or another payload on the second node is executed there, also after a
    /// restart; on one node everything holds.
    SecondNodeForgets,
    /// A replay has the status 200
    ///
    /// 201, 202, 204 and the refusals (402, 404, 409) replay as 200, with the right body.
    #[value(name = "status-200-on-replay")]
    Status200OnReplay,
    /// A replay has no header of the first response but `Content-Type`
    ///
    /// `Location`, both `Link`, `ETag` and `X-Opaque` are missing in a replay.
    HeadersDropped,
    /// A repeated header is stored as one line, joined by a comma
    ///
    /// A replay has one `Link` with both values, where the first response has two lines.
    RepeatedHeadersMerged,
    /// Headers are stored in a map: of a repeated header, the last line stays
    ///
    /// A replay has only the second `Link`.
    RepeatedHeadersLastWins,
    /// Header values are stored as UTF-8 text
    ///
    /// The bytes of `X-Opaque` above 0x7F are U+FFFD (`EF BF BD`) in a replay.
    BinaryHeaderMangled,
    /// A JSON body is stored parsed and written again
    ///
    /// The body of a replay has other white space, another order of members, and `12.50` is `12.5`.
    BodyReserialised,
    /// The body is not stored
    ///
    /// A replay has the right status and headers and `Content-Length: 0`.
    BodyEmptyOnReplay,
    /// A body is stored as UTF-8 text
    ///
    /// The replay of `"item": "binary"` has U+FFFD in the place of bytes; JSON bodies are right.
    BinaryBodyAsText,
    /// `Location` is not stored
    ///
    /// A replay lacks `Location`; everything else is right.
    LocationDropped,
    /// `Set-Cookie` is stored
    ///
    /// A replay sets the session cookie of the first response; the correct server sets none.
    SetCookieReplayed,
    /// `Date` is stored
    ///
    /// A replay after a second or more has the `Date` of the first response.
    DateReplayed,
    /// A response without a body is not stored
    ///
    /// The retry of `"item": "empty"` (204) has a second effect.
    #[value(name = "empty-204-not-stored")]
    Empty204NotStored,
    /// The status 202 is not stored
    ///
    /// The retry of `"item": "accepted"` is executed again: new `id`, second effect.
    #[value(name = "accepted-202-not-stored")]
    Accepted202NotStored,
    /// A chunked response is not stored
    ///
    /// The retry of `"item": "chunked"` is executed again: new `id`, second effect.
    ChunkedNotStored,
    /// A replay returns the stored response, but the order is executed again before
    ///
    /// Responses are byte for byte right; the count of effects grows with each retry.
    EffectOnReplay,
    /// Only the last 100 keys are kept
    ///
    /// A retry after 100 other keys is executed again.
    ReplayReexecutesAfterMany,
    /// A key is forgotten after one second
    ///
    /// A retry after more than a second is executed again, with any `--retention`.
    ReplayExpiresAfterOneSecond,
    /// A key never expires
    ///
    /// After `--retention` a retry still replays, where it should run as new (adcp: 410).
    ExpiredNever,
    // Fingerprint
    /// The fingerprint is not compared
    ///
    /// Any other payload under a key replays the stored response; never a mismatch.
    FingerprintForgotten,
    /// The fingerprint of a body is its length
    ///
    /// Another payload of the same length replays; payloads of other lengths are a mismatch, and so
    /// is other white space.
    FingerprintOnlyLength,
    /// Numbers are compared as doubles
    ///
    /// 9007199254740992 and 9007199254740993 replay each other. Under hapax, ietf and iceberg 1 and
    /// 1.0 do too.
    FingerprintThroughDoubles,
    /// The query is not in the fingerprint
    ///
    /// The same body with another `?currency=` replays.
    FingerprintWithoutQuery,
    /// The content type is not in the fingerprint
    ///
    /// The same body as `text/plain` replays, where it should be a mismatch.
    FingerprintWithoutContentType,
    /// The path is not in the fingerprint
    ///
    /// `/orders/2/notes` replays the response of `/orders/1/notes` under the same key.
    FingerprintWithoutPath,
    /// The order of members counts
    ///
    /// The same JSON with its members in another order is a mismatch; other white space replays.
    FingerprintOrderSensitive,
    /// The bytes of the body count
    ///
    /// The same JSON with other white space, escapes or order of members is a mismatch.
    FingerprintRawBytes,
    /// The fingerprint is of the canonical JSON, where the profile asks for the raw bytes
    ///
    /// The same JSON with other white space or order of members replays instead of a mismatch.
    FingerprintCanonical,
    /// Numbers are compared as text, where the profile compares values
    ///
    /// 1.0 after 1 is a mismatch instead of a replay.
    FingerprintNumbersAsSent,
    /// A member that is null is left out of the fingerprint
    ///
    /// `{"amount": 1, "note": null}` replays the response of `{"amount": 1}`.
    FingerprintNullIsAbsent,
    /// Text is compared without regard to case
    ///
    /// A payload with `"note": "A"` replays the response of `"note": "a"`.
    FingerprintFoldsCase,
    /// Of two members with one name the first is in the fingerprint and the last is executed
    ///
    /// `{"amount": 1, "amount": 2}` is accepted (not 400): new, it orders 2; after `{"amount": 1}`
    /// it replays.
    FingerprintFirstDuplicateMember,
    // Mismatch
    /// A mismatch response has the stored response in it
    ///
    /// The problem has a member `stored` with the first response's body, and so its `id` and
    /// amount.
    MismatchLeaksStoredResponse,
    /// A mismatch is executed as a new request
    ///
    /// Another payload under a used key is a 201 with a second effect; the same payload replays.
    MismatchExecutes,
    /// A mismatch has another status than the profile says
    ///
    /// 409 where the profile says 422, 422 where it says 409 or 400; the code is right.
    MismatchWrongStatus,
    /// A mismatch has a `Retry-After`
    ///
    /// The response invites a client to send again what can never succeed.
    MismatchWithRetryAfter,
    /// While the first request runs, payloads are not compared
    ///
    /// Another payload during `"item": "slow"` is in progress; after it, a mismatch.
    MismatchWhileRunningIsInProgress,
    // In flight
    /// The key is looked up 30 ms before it is taken
    ///
    /// Requests that arrive together all run, each with its own `id` and effect; a duplicate that
    /// arrives 30 ms later is in progress.
    RaceWindow,
    /// A running key is known only to the node that runs it
    ///
    /// Requests that arrive together on both nodes run twice; completed keys replay on both.
    /// Another payload on the second node while the first runs is executed.
    RaceOnSecondNode,
    /// A duplicate of a running request never gets a response
    ///
    /// The duplicate's connection stays open and silent, also after the first request ended.
    WaitsForEverInFlight,
    /// A duplicate of a running request is a success without a body
    ///
    /// The duplicate gets 200 with an empty body, while the first request may still fail.
    InFlightClaimsSuccess,
    /// In progress has no `Retry-After`
    ///
    /// 409 without `Retry-After`, and without `retry_after` in the body under adcp.
    InFlightWithoutRetryAfter,
    /// `Retry-After` is not a number and not a date
    ///
    /// 409 in progress has `Retry-After: soon`.
    RetryAfterGarbage,
    // Lost responses and broken requests
    /// The key is stored after the response was written, if the client was there to read it
    ///
    /// If the connection ends before the last byte of the response, a retry has a second effect.
    /// Each response comes in three parts, 20 ms apart. During them a duplicate is in progress.
    LostResponseReexecutes,
    /// The key is freed if the client goes away while the request runs; the effect stays
    ///
    /// A client that closes the connection during `"item": "slow"` and retries has two effects.
    KeyFreedOnDisconnect,
    /// A body that was cut is executed
    ///
    /// Half a body creates an order (amount 1 if the half is not JSON); the whole body under the
    /// same key is a mismatch then.
    CutBodyExecutes,
    /// A body that was cut leaves the key in progress
    ///
    /// No effect, but every retry with the key is 409 in progress until the server is restarted.
    CutBodyPoisonsKey,
    // Restarts
    /// The effect is durable when a request starts, the key when it ends
    ///
    /// After a kill during `"item": "slow"` and a restart, the retry has a second effect.
    KillLosesKey,
    /// The mark of a running request is durable, and stays after a kill
    ///
    /// After a kill during `"item": "slow"` and a restart, the key is in progress without end.
    KillLeavesKeyLocked,
    // Scope
    /// The principal is not in the scope
    ///
    /// Bob gets Alice's response under her key and payload, and a mismatch with another payload.
    ScopeWithoutPrincipal,
    /// The operation is not in the scope
    ///
    /// A key used at `POST /orders` is a mismatch at `POST /refunds`, and at `PUT /orders`
    /// (the paths and methods are in the fingerprint).
    ScopeWithoutOperation,
    /// The scope has the token instead of the principal
    ///
    /// A retry with `alice-rotated` is executed again.
    ScopeIncludesCredential,
    /// The scope has the path instead of the route's template
    ///
    /// The key of `/orders/1/notes` is executed at `/orders/2/notes` instead of a mismatch.
    ScopeIncludesPath,
    // Outcomes
    /// A 500 is stored, where the profile forbids it
    ///
    /// The retry of `"item": "crash"` replays the 500 without end, instead of a 201.
    ServerErrorKept,
    /// A 500 is not stored, where the profile says that it is
    ///
    /// The retry of `"item": "crash"` is a 201, instead of the stored 500.
    ServerErrorNotKept,
    /// A request that fails with 500 leaves its effect
    ///
    /// `"item": "crash"` has one effect at the 500 and, if the key is free, a second at the retry.
    ServerErrorKeepsEffect,
    /// A request that fails with 500 leaves its key in progress
    ///
    /// Every retry of `"item": "crash"` is 409 in progress until the server is restarted.
    ServerErrorLeavesKeyLocked,
    /// Refusals are not stored
    ///
    /// The retry of 402, 404 and 409 refusals is evaluated again: another nonce in the body;
    /// another payload under the key is executed instead of a mismatch.
    RefusalNotKept,
    /// A 429 is stored
    ///
    /// The retry of `"item": "limited"` replays the 429 without end, instead of a 201.
    RateLimitKept,
    /// A failed validation is stored
    ///
    /// After `"amount": 0` the retry replays byte for byte, and a corrected payload under the same
    /// key is a mismatch instead of a 201.
    ValidationKept,
    // Header
    /// A request without a key is executed, where the profile demands one
    ///
    /// 201 and an effect instead of 400.
    MissingAccepted,
    /// A request without a key is refused, where the profile makes it optional
    ///
    /// 400 instead of 201.
    MissingRefused,
    /// An empty key is accepted
    ///
    /// `Idempotency-Key:` and `Idempotency-Key: ""` are executed (201), and share one key.
    EmptyKeyAccepted,
    /// A key of more than 255 bytes is accepted
    ///
    /// 201 instead of 400 for a key of 256 bytes or more.
    LongKeyAccepted,
    /// A key is cut at 64 bytes
    ///
    /// Two keys with the same first 64 bytes are one: a replay or a mismatch of the other's.
    LongKeyTruncated,
    /// The quotes are part of the key
    ///
    /// `"k"` after `k` is executed again.
    QuotedAndBareDiffer,
    /// The parameters are part of the key
    ///
    /// `"k";a=1` after `"k"` is executed again.
    ParametersPartOfKey,
    /// Escapes are not resolved
    ///
    /// `"a\\b"` after the bare `a\b` is executed again.
    EscapesKept,
    /// A quoted key without its closing quote is accepted
    ///
    /// `"k` is 201 instead of 400, and is the same key as `k`.
    UnterminatedQuoteAccepted,
    /// Of two `Idempotency-Key` headers the first is taken
    ///
    /// 201 instead of 400.
    TwoHeadersFirstWins,
    /// Keys are compared without regard to case
    ///
    /// `K` after `k` replays (or is a mismatch) instead of being executed.
    CaseInsensitiveKey,
    /// Bytes above 0x7F are accepted in a key
    ///
    /// 201 instead of 400.
    NonAsciiAccepted,
    /// Control bytes are accepted in a key
    ///
    /// 201 instead of 400 for a tab, 0x01 or 0x7F inside the key.
    ControlAccepted,
    /// The version of a UUID is not checked, where the profile asks for version 7
    ///
    /// A UUID of version 4 is 201 instead of 400; a key that is not a UUID is still 400.
    UuidVersionUnchecked,
}

impl Bug {
    /// All bugs, in the order of the enum.
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name that `--bug` takes.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// The deviation in one line.
    pub(crate) fn description(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }

    /// The profiles under which a client sees the bug.
    pub(crate) fn profiles(self) -> &'static [Profile] {
        use Profile::{Acp, Adcp, Hapax, Iceberg, Ietf, Stripe, Ucp};
        match self {
            Self::FingerprintThroughDoubles
            | Self::FingerprintOrderSensitive
            | Self::FingerprintRawBytes
            | Self::FingerprintNullIsAbsent
            | Self::FingerprintFoldsCase => &[Hapax, Ietf, Stripe, Acp, Adcp, Iceberg],
            Self::FingerprintNumbersAsSent => &[Stripe, Acp, Adcp],
            Self::FingerprintCanonical => &[Ucp],
            Self::ServerErrorKept => &[Hapax, Ietf, Acp, Ucp, Adcp, Iceberg],
            Self::ServerErrorNotKept => &[Stripe],
            Self::MissingAccepted => &[Hapax, Ietf, Acp, Ucp, Adcp],
            Self::MissingRefused => &[Stripe, Iceberg],
            Self::UuidVersionUnchecked => &[Iceberg],
            // Under iceberg a key that is not a UUID is refused for that reason.
            Self::LongKeyAccepted
            | Self::CaseInsensitiveKey
            | Self::LongKeyTruncated
            | Self::EscapesKept
            | Self::EmptyKeyAccepted
            | Self::NonAsciiAccepted
            | Self::ControlAccepted => &[Hapax, Ietf, Stripe, Acp, Ucp, Adcp],
            _ => Profile::value_variants(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_a_description_and_a_profile() {
        for bug in Bug::all() {
            assert!(!bug.name().is_empty(), "{bug:?}");
            assert!(!bug.description().is_empty(), "{bug:?}");
            assert!(!bug.description().contains('\n'), "{bug:?}");
            assert!(!bug.profiles().is_empty(), "{bug:?}");
        }
    }

    #[test]
    fn names_with_a_number_have_a_hyphen_before_it() {
        assert_eq!(Bug::Status200OnReplay.name(), "status-200-on-replay");
        assert_eq!(Bug::Empty204NotStored.name(), "empty-204-not-stored");
        assert_eq!(Bug::Accepted202NotStored.name(), "accepted-202-not-stored");
        assert_eq!(Bug::CutBodyPoisonsKey.name(), "cut-body-poisons-key");
    }
}
