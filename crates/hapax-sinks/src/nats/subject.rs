//! Subject of an event.
//!
//! A type keeps its dots: `order.created` is two tokens of the subject. Characters that NATS
//! forbids or gives a meaning (blanks, `*`, `>`, `$`, control and non-ASCII bytes, a dot that would
//! create an empty token, and `%` itself) are percent-encoded, and so are all dots of a tenant or
//! an aggregate. So an event cannot produce a wildcard, a system subject, or the token of another
//! event.

use std::fmt::Write as _;

use hapax::event::Event;

use crate::pattern::{Hole, Pattern};

/// The subject of an event.
pub(super) fn of(event: &Event, pattern: &Pattern) -> String {
    pattern.fill(event, |hole, value| spell(value, hole == Hole::Type))
}

/// Whether this is a valid subject to publish to.
pub(super) fn is_valid(subject: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>');
    !subject.starts_with('$')
        && subject
            .split('.')
            .all(|token| !token.is_empty() && token.bytes().all(is_plain))
}

fn spell(value: &str, dots: bool) -> String {
    let bytes = value.as_bytes();
    let mut spelt = String::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        let is_dot = |at: usize| bytes.get(at).is_none_or(|&byte| byte == b'.');
        let plain = match byte {
            b'.' => dots && at > 0 && !is_dot(at - 1) && !is_dot(at + 1),
            b'*' | b'>' | b'$' | b'%' => false,
            _ => byte.is_ascii_graphic(),
        };
        if plain {
            spelt.push(char::from(byte));
        } else {
            write!(spelt, "%{byte:02X}").expect("writing to a string never fails");
        }
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_keeps_the_dots_between_its_words() {
        check("order.created", true, "order.created");
        check("order.created", false, "order%2Ecreated");
        check(".a..b.", true, "%2Ea%2E%2Eb%2E");
    }

    #[test]
    fn what_nats_gives_a_meaning_is_escaped() {
        check("a b\t\r\n", true, "a%20b%09%0D%0A");
        check("a.*.>", true, "a.%2A.%3E");
        check("$JS.API.STREAM.DELETE.X", true, "%24JS.API.STREAM.DELETE.X");
        check("50%2E", true, "50%252E");
        check("caf\u{e9}", true, "caf%C3%A9");
    }

    #[test]
    fn a_subject_of_the_system_or_with_a_wildcard_is_none_to_publish_to() {
        for subject in ["", "a..b", ".a", "a.", "a b", "a.*", "a.>", "$JS.x"] {
            assert!(!is_valid(subject), "{subject}");
        }
        assert!(is_valid("events.x"));
    }

    #[track_caller]
    fn check(value: &str, dots: bool, expected: &str) {
        let spelt = spell(value, dots);
        assert_eq!(spelt, expected);
        assert!(is_valid(&format!("events.{spelt}")), "{spelt}");
    }
}
