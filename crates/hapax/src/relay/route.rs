//! Which events a destination receives.

use metrics::counter;

use crate::{event::Event, filter::Applied, keyring::ENCRYPTED_UNDER, telemetry};

use super::destination::Destination;

/// A pattern of event types, such as `order.*`. `*` matches any sequence of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether the pattern matches the whole of `kind`.
    pub fn matches(&self, kind: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return self.0 == kind;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The two ends are removed first, so that they cannot overlap.
        let inner = kind
            .strip_prefix(first)
            .and_then(|kind| kind.strip_suffix(last));
        let Some(mut inner) = inner else { return false };
        middle
            .split('*')
            .all(|partition| match inner.find(partition) {
                Some(at) => {
                    inner = &inner[at + partition.len()..];
                    true
                }
                None => false,
            })
    }
}

/// Whether `destination` receives `event`. The filter is applied last, because it reads the payload.
pub(super) fn takes(destination: &Destination, event: &Event) -> bool {
    may_have(destination, event)
        && destination
            .patterns
            .iter()
            .any(|pattern| pattern.matches(&event.kind))
        && matches_filter(destination, event)
}

fn matches_filter(destination: &Destination, event: &Event) -> bool {
    let Some(filter) = &destination.filter else {
        return true;
    };
    // It cannot be decrypted by any key, and becomes a dead letter instead of being skipped.
    if event.headers.contains_key(ENCRYPTED_UNDER) {
        return true;
    }
    let applied = filter.apply(event);
    if applied == Applied::Unreadable {
        let label = destination.name.clone();
        counter!(telemetry::RELAY_UNREADABLE, "destination" => label).increment(1);
    }
    applied == Applied::Matches
}

/// Whether `destination` may receive `event` at all, because the event belongs to its tenant.
pub(super) fn may_have(destination: &Destination, event: &Event) -> bool {
    match &destination.tenant {
        None => true,
        only => event.tenant == *only,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        check("*", "order.created", true);
        check("order.*", "order.created", true);
        check("order.*", "order.", true);
        check("order.*", "orders.created", false);
        check("*.created", "order.line.created", true);
        check("*.created", "order.created.twice", false);
        check("*.created", "a.created.created", true);
        check("order.*.done", "order.x.done", true);
        check("order.*.done", "order.done", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*bc", "abc", true);
        check("a*bc", "a", false);
        check("ab*ba", "aba", false);
    }

    #[test]
    fn without_a_star_the_whole_type_must_be_equal() {
        check("order.created", "order.created", true);
        check("order.created", "order.created2", false);
        check("order.created", "order", false);
        check("", "", true);
    }

    #[track_caller]
    fn check(pattern: &str, kind: &str, expected: bool) {
        assert_eq!(
            Pattern::new(pattern).matches(kind),
            expected,
            "{pattern} {kind}"
        );
    }
}
