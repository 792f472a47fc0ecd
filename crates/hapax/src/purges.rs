//! Purged keys, for services that cache responses.
//!
//! A store numbers purges in the order in which they become visible. A service that has read up to
//! a [`PurgeMark`] asks for later ones. If the store cannot list them, because too many followed or
//! because the database was replaced, it says so, and the service clears its cache.

use crate::key::Scope;

/// The last purge that a service has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeMark {
    /// The history in which purges are numbered. It changes when a database is restored or
    /// replaced.
    pub history: String,
    /// The number of the last purge; 0 before the first one.
    pub number: i64,
}

/// The purges after a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purged {
    /// The last purge that is included.
    pub until: PurgeMark,
    /// The purged keys; `None` if they are not known, in which case any key may be among them.
    pub keys: Option<Vec<Scope>>,
}

impl Purged {
    /// The purges between `since` and `until`. `kept` are those that are still stored.
    ///
    /// Numbers have no gaps. If there are fewer rows than numbers, some are not stored any more.
    pub fn of(since: Option<&PurgeMark>, until: PurgeMark, kept: Vec<Scope>) -> Self {
        let all = since.is_some_and(|since| {
            let went = until.number.checked_sub(since.number);
            since.history == until.history && went == i64::try_from(kept.len()).ok()
        });
        Self {
            until,
            keys: all.then_some(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{IdempotencyKey, Operation, Tenant};

    #[test]
    fn what_was_purged_is_known_only_without_a_gap_and_in_one_history() {
        let known = |since: Option<&PurgeMark>, until, kept| {
            let kept = (0..kept).map(|_| scope()).collect();
            Purged::of(since, until, kept).keys.map(|keys| keys.len())
        };
        let at = |number| mark("a", number);
        assert_eq!(known(Some(&at(4)), at(4), 0), Some(0));
        assert_eq!(known(Some(&at(4)), at(6), 2), Some(2));
        assert_eq!(known(Some(&at(4)), at(7), 2), None);
        assert_eq!(known(Some(&at(4)), at(3), 0), None);
        assert_eq!(known(Some(&mark("b", 4)), at(4), 0), None);
        assert_eq!(known(None, at(0), 0), None);
    }

    fn mark(history: &str, number: i64) -> PurgeMark {
        PurgeMark {
            history: history.to_owned(),
            number,
        }
    }

    fn scope() -> Scope {
        Scope {
            tenant: Tenant::new("alice").unwrap(),
            operation: Operation::new("POST /orders").unwrap(),
            key: IdempotencyKey::new("k").unwrap(),
        }
    }
}
