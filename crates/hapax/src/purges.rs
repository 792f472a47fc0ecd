//! Which keys were purged: what a service needs to know that keeps answers in memory.
//!
//! A store numbers purges in the order in which they become visible. A service that has read them
//! up to a [`PurgeMark`] asks for those behind it. Where the store cannot tell, because too many
//! went since or the database is another one, it says so, and the service forgets all that it keeps.

use crate::key::Scope;

/// Up to which purge a service has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeMark {
    /// The history in which purges are counted: it changes when a database is restored or replaced.
    pub history: String,
    /// The number of the last purge; 0 before the first.
    pub number: i64,
}

/// What was purged behind a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purged {
    /// Up to which purge this tells.
    pub until: PurgeMark,
    /// The keys; `None` when it is not known which they were: any key may be among them.
    pub keys: Option<Vec<Scope>>,
}

impl Purged {
    /// What is known about the purges between `since` and `until`, of which `kept` are still stored.
    ///
    /// Numbers have no gaps, so fewer rows than numbers means that some are not stored any more.
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
