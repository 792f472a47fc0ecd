//! Search of the queue for deliveries that are due, in several claims.
//!
//! A claim looks at a bounded number of endpoints, so the next one begins where it ended. A search of
//! the whole queue that has found nothing is repeated after a while, and not at once: thousands of
//! endpoints that are down can have deliveries that wait and are not due.

use super::store::ClaimedDeliveries;

/// How far a search has come.
#[derive(Debug, Default)]
pub(super) struct Search {
    after: String,
    has_found: bool,
}

impl Search {
    /// The endpoint after which the next claim begins.
    pub(super) fn after(&self) -> &str {
        &self.after
    }

    /// Notes what a claim of at most `limit` deliveries has found. Returns whether the next claim
    /// follows at once.
    pub(super) fn continues(&mut self, claimed: &ClaimedDeliveries, limit: usize) -> bool {
        let deliveries = &claimed.deliveries;
        self.has_found |= !deliveries.is_empty();
        let last = deliveries.last().map(|it| &it.endpoint);
        let is_full = deliveries.len() >= limit;
        let until = if is_full {
            last
        } else {
            claimed.until.as_ref()
        };
        if let Some(endpoint) = until {
            self.after.clone_from(endpoint);
            true
        } else {
            self.after.clear();
            std::mem::take(&mut self.has_found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::ClaimedDelivery;

    #[test]
    fn a_search_of_many_endpoints_without_a_due_delivery_ends() {
        let mut search = Search::default();
        for _ in 0..2 {
            check(&mut search, &[], Some("b"), true, "b");
            check(&mut search, &[], Some("d"), true, "d");
            check(&mut search, &[], None, false, "");
        }
    }

    #[test]
    fn a_search_that_has_found_something_is_repeated_at_once() {
        let mut search = Search::default();
        check(&mut search, &["a"], Some("b"), true, "b");
        check(&mut search, &[], None, true, "");
        check(&mut search, &[], None, false, "");
        check(&mut search, &["a"], None, true, "");
        check(&mut search, &[], None, false, "");
    }

    #[test]
    fn a_full_claim_is_continued_after_its_last_endpoint() {
        let mut search = Search::default();
        check(&mut search, &["a", "b"], Some("d"), true, "b");
        check(&mut search, &["c", "c"], None, true, "c");
        check(&mut search, &[], None, true, "");
        check(&mut search, &[], None, false, "");
    }

    #[track_caller]
    fn check(
        search: &mut Search,
        endpoints: &[&str],
        until: Option<&str>,
        continues: bool,
        after: &str,
    ) {
        let delivery = |endpoint: &&str| ClaimedDelivery {
            endpoint: (*endpoint).to_owned(),
            event_id: "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21".parse().unwrap(),
            attempt: 1,
            counted: 1,
            event: Err(String::new()),
        };
        let claimed = ClaimedDeliveries {
            deliveries: endpoints.iter().map(delivery).collect(),
            until: until.map(str::to_owned),
        };
        assert_eq!(search.continues(&claimed, 2), continues);
        assert_eq!(search.after(), after);
    }
}
