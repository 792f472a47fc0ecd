//! The checker: compares a ledger with the events that were committed.
//!
//! A page whose commit the endpoint has not confirmed may come again. After a confirmed commit, no event
//! before the cursor may come again. For a consumer that keeps its cursor, a page in the ledger is
//! committed.

use std::collections::{HashMap, HashSet};

use super::ledger::{Entry, Page, Received};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// A committed event was never received.
    Missing,
    /// An event was not committed, or differs from the one that was.
    Unknown,
    /// An event belongs to another tenant.
    Foreign,
    /// An event came twice on a page, or again after its commit.
    Twice,
    /// An event came before an earlier one of its aggregate.
    Order,
}

#[derive(Debug)]
pub(super) struct Report {
    /// The violations, and the ids of their events.
    pub(super) violations: Vec<(Violation, String)>,
    /// Whether an event was received after one with a higher position.
    pub(super) is_late: bool,
}

/// Checks the ledger of a consumer. `committed` are the events of its tenant, by position.
pub(super) fn check(
    tenant: &str,
    committed: &[Received],
    entries: &[Entry],
    keeps_cursor: bool,
) -> Report {
    let mut checker = Checker {
        tenant,
        committed: committed.iter().map(|it| (it.id.as_str(), it)).collect(),
        received: Vec::new(),
        settled: HashSet::new(),
        reached: HashMap::new(),
        violations: Vec::new(),
    };
    let mut last: Option<&Page> = None;
    for entry in entries {
        match entry {
            Entry::Page(page) => {
                checker.receive(page);
                if keeps_cursor {
                    checker.settle(page);
                }
                last = Some(page);
            }
            Entry::Committed { cursor } => {
                let page = last.filter(|page| page.cursor == *cursor);
                checker.settle(page.expect("a commit comes after its page"));
            }
        }
    }
    checker.report(committed)
}

/// Whether an event came more than once.
pub(super) fn has_repeats(entries: &[Entry]) -> bool {
    let mut ids = HashSet::new();
    let mut pages = entries.iter().filter_map(|entry| match entry {
        Entry::Page(page) => Some(page),
        Entry::Committed { .. } => None,
    });
    pages.any(|page| !page.events.iter().all(|event| ids.insert(&event.id)))
}

struct Checker<'a> {
    tenant: &'a str,
    committed: HashMap<&'a str, &'a Received>,
    /// The ids of all events, in the order of the ledger.
    received: Vec<&'a str>,
    /// The ids of the events before a committed cursor.
    settled: HashSet<&'a str>,
    /// The highest number of each aggregate.
    reached: HashMap<&'a str, i64>,
    violations: Vec<(Violation, String)>,
}

impl<'a> Checker<'a> {
    fn receive(&mut self, page: &'a Page) {
        let mut ids = HashSet::new();
        // The number of each aggregate's last event on this page.
        let mut last: HashMap<&str, i64> = HashMap::new();
        for event in &page.events {
            let (id, aggregate) = (event.id.as_str(), event.aggregate.id.as_str());
            let is_twice = self.settled.contains(id) || !ids.insert(id);
            let violation = if event.tenant.as_deref() != Some(self.tenant) {
                Some(Violation::Foreign)
            } else if self.committed.get(id).is_none_or(|it| *it != event) {
                Some(Violation::Unknown)
            } else if is_twice {
                Some(Violation::Twice)
            } else if !self.is_in_order(event, last.get(aggregate).copied()) {
                Some(Violation::Order)
            } else {
                None
            };
            self.violations
                .extend(violation.map(|violation| (violation, id.to_owned())));
            self.received.push(id);
            last.insert(aggregate, event.sequence);
            let reached = self.reached.entry(aggregate).or_default();
            *reached = event.sequence.max(*reached);
        }
    }

    /// Whether an event may come after the last one of its aggregate on its page. The first one on a page
    /// may have come before, and no number may be skipped.
    fn is_in_order(&self, event: &Received, last: Option<i64>) -> bool {
        if let Some(last) = last {
            return event.sequence == last + 1;
        }
        let reached = self.reached.get(event.aggregate.id.as_str());
        event.sequence <= reached.copied().unwrap_or_default() + 1
    }

    fn settle(&mut self, page: &'a Page) {
        let ids = page.events.iter().map(|event| event.id.as_str());
        self.settled.extend(ids);
    }

    fn report(mut self, committed: &'a [Received]) -> Report {
        let mut seen = HashSet::new();
        self.received.retain(|id| seen.insert(*id));
        let ids = || committed.iter().map(|it| it.id.as_str());
        let missing = ids().filter(|id| !seen.contains(id));
        let missing = missing.map(|id| (Violation::Missing, id.to_owned()));
        self.violations.extend(missing);
        Report {
            is_late: !self.received.into_iter().eq(ids()),
            violations: self.violations,
        }
    }
}

/// The event of an aggregate with a number below ten: `a1`.
fn event(id: &str) -> Received {
    let (aggregate, number) = id.split_at(1);
    Received::new(id, "ann", aggregate, number.parse().unwrap())
}

fn page(cursor: &str, ids: &[&str]) -> Entry {
    Entry::Page(Page {
        events: ids.iter().map(|id| event(id)).collect(),
        cursor: cursor.to_owned(),
        has_more: false,
    })
}

fn committed(cursor: &str) -> Entry {
    Entry::Committed {
        cursor: cursor.to_owned(),
    }
}

/// A consumer that was killed twice: before the commit of 1, and when the commit of 3 had been sent.
fn correct() -> Vec<Entry> {
    vec![
        page("1", &["a1", "a2"]),
        page("2", &["a1", "a2", "b1"]),
        committed("2"),
        page("3", &["a3"]),
        page("4", &[]),
        committed("4"),
    ]
}

const NONE: [(Violation, String); 0] = [];

fn violations(entries: &[Entry], keeps_cursor: bool) -> Vec<(Violation, String)> {
    let all = ["a1", "b1", "a2", "a3"].map(event);
    check("ann", &all, entries, keeps_cursor).violations
}

/// Checks a ledger in which one entry is another one.
#[track_caller]
fn check_planted(place: usize, planted: Entry, expected: &[(Violation, &str)]) {
    let mut entries = correct();
    entries[place] = planted;
    let found = violations(&entries, false);
    let found: Vec<_> = found.iter().map(|(it, id)| (*it, id.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_page_may_come_again_until_its_cursor_is_committed() {
    assert_eq!(violations(&correct(), false), NONE);
    assert!(has_repeats(&correct()));
    let all = ["a1", "b1", "a2", "a3"].map(event);
    assert!(check("ann", &all, &correct(), false).is_late);
    let in_place = ["a1", "a2", "b1", "a3"].map(event);
    assert!(!check("ann", &in_place, &correct(), false).is_late);
}

#[test]
fn a_page_in_the_ledger_may_not_come_again_if_the_consumer_keeps_its_cursor() {
    let expected = ["a1", "a2"].map(|id| (Violation::Twice, id.to_owned()));
    assert_eq!(violations(&correct(), true), expected);
    let once = [page("1", &["a1", "a2", "b1"]), page("2", &["a3"])];
    assert_eq!(violations(&once, true), NONE);
    assert!(!has_repeats(&once));
}

#[test]
fn a_missing_event_is_found() {
    check_planted(3, page("3", &[]), &[(Violation::Missing, "a3")]);
    // Without its number the next one is not in order.
    let entries = [page("1", &["a1", "b1"]), committed("1"), page("2", &["a3"])];
    let expected = [(Violation::Order, "a3"), (Violation::Missing, "a2")];
    let expected = expected.map(|(it, id)| (it, id.to_owned()));
    assert_eq!(violations(&entries, false), expected);
}

#[test]
fn an_event_that_comes_twice_within_one_commit_or_after_it_is_found() {
    let doubled = page("2", &["a1", "a2", "a2", "b1"]);
    check_planted(1, doubled, &[(Violation::Twice, "a2")]);
    let again = page("3", &["b1", "a3"]);
    check_planted(3, again, &[(Violation::Twice, "b1")]);
}

#[test]
fn an_event_before_an_earlier_one_of_its_aggregate_is_found() {
    let swapped = page("2", &["a2", "a1", "b1"]);
    check_planted(1, swapped, &[(Violation::Order, "a1")]);
    let early = page("1", &["a1", "a3"]);
    check_planted(0, early, &[(Violation::Order, "a3")]);
}

#[test]
fn an_event_of_another_tenant_or_of_no_commit_is_found() {
    let mut foreign = event("a3");
    foreign.tenant = Some("bob".to_owned());
    let planted = Entry::Page(Page {
        events: vec![
            event("a3"),
            Received {
                id: "x".to_owned(),
                ..foreign
            },
        ],
        cursor: "3".to_owned(),
        has_more: false,
    });
    check_planted(3, planted, &[(Violation::Foreign, "x")]);
    let rolled_back = page("3", &["a3", "a4"]);
    check_planted(3, rolled_back, &[(Violation::Unknown, "a4")]);
}
