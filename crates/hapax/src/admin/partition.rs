//! The status of one partition, from which the overview and the list of what is stalled are
//! computed.
//!
//! A store reads a bounded number of rows for it, so that the cost does not grow with the backlog.

use std::time::Duration;

use super::{Cause, Count, CountKind, DestinationFigures, Stalled, StalledItem};
use crate::clock::Timestamp;

/// How long an item may make no progress before it is reported. A live relay needs less.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The status of one partition.
#[derive(Clone, Debug)]
pub struct PartitionStatus {
    /// The name.
    pub name: String,
    /// When the partition was disabled, and why.
    pub disabled: Option<(Timestamp, String)>,
    /// When an operator paused its destination.
    pub paused_at: Option<Timestamp>,
    /// The operator who paused its destination.
    pub paused_by: Option<String>,
    /// Whether the specification of its destination pauses it.
    pub is_set_paused: bool,
    /// The node that owns it.
    pub node: Option<String>,
    /// Whether its owner is alive.
    pub lives: bool,
    /// The time of the last heartbeat of its node.
    pub seen_at: Option<Timestamp>,
    /// Whether any node is alive.
    pub any_lives: bool,
    /// When its checkpoint was written.
    pub written_at: Timestamp,
    /// The unsettled events among those that were read.
    pub unread: u64,
    /// The number of events beyond the frontier that were read, at most [`Self::EVENTS`].
    pub looked: i64,
    /// The estimated number of unsettled events.
    pub about: u64,
    /// When the first unsettled event became due, among those that were read.
    pub oldest_unread: Option<Timestamp>,
    /// The parked deliveries, counted up to [`Self::DELIVERIES`].
    pub parked: u64,
    /// When the first parked delivery became due, among those that were read; none if all of them wait
    /// for their time.
    pub oldest_parked: Option<Timestamp>,
    /// The dead letters, counted up to [`Self::DELIVERIES`].
    pub dead: u64,
    /// The delivery that is retried next.
    pub next: Option<NextRetry>,
    /// When the status was read, by the database's clock.
    pub at: Timestamp,
}

/// A delivery that is waiting for a retry.
#[derive(Clone, Debug)]
pub struct NextRetry {
    /// The position of its event.
    pub position: i64,
    /// The attempts that were made.
    pub attempts: u32,
    /// When the next attempt is due.
    pub due_at: Timestamp,
    /// The last error.
    pub error: Option<String>,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

impl PartitionStatus {
    /// Events beyond a frontier that are read.
    pub const EVENTS: i64 = 1_000;
    /// Deliveries of each kind that are counted.
    pub const DELIVERIES: i64 = 2_000;
    /// Deliveries that are due next, of which the first retry is [`next`](Self::next).
    pub const DUE: i64 = 100;

    /// Why the partition is stalled, if it is.
    pub fn stalled(&self) -> Option<Stalled> {
        let waiting = self.unread.max(if self.looked < Self::EVENTS {
            0
        } else {
            self.about
        }) + self.parked;
        let stalled = |cause, since| {
            let partition = self.name.clone();
            let what = StalledItem::Partition { partition };
            Some(Stalled::new(what, cause, since, waiting))
        };
        if let Some((at, reason)) = &self.disabled {
            let reason = reason.clone();
            return stalled(Cause::Disabled { reason }, Some(*at));
        }
        if self.paused_at.is_some() || self.is_set_paused {
            let by = self.paused_by.clone().filter(|_| self.paused_at.is_some());
            return stalled(Cause::Paused { by }, self.paused_at);
        }
        if waiting == 0 {
            return None;
        }
        match &self.node {
            Some(node) if !self.lives && self.any_lives => {
                let (node, seen_at) = (node.clone(), self.seen_at);
                return stalled(Cause::OwnerSilent { node, seen_at }, seen_at);
            }
            last if !self.lives => {
                let last = last.clone();
                return stalled(Cause::Unowned { last }, self.seen_at);
            }
            _ => {}
        }
        let is_old = |at: Timestamp| self.at.since(at) > PATIENCE;
        match &self.next {
            Some(next) if next.due_at > self.at => {
                let cause = Cause::WaitsForRetry {
                    position: next.position,
                    attempts: next.attempts,
                    next_at: next.due_at,
                    error: next.error.clone(),
                };
                stalled(cause, Some(next.changed_at))
            }
            Some(next) if is_old(next.due_at) => stalled(Cause::NotSettling, Some(next.due_at)),
            _ if self.oldest_unread.is_some_and(is_old) && is_old(self.written_at) => {
                stalled(Cause::NotSettling, Some(self.written_at))
            }
            _ => None,
        }
    }

    /// What is stalled of some partitions, and the names of those whose single order keys and event
    /// types may be stalled: if a whole partition is stalled, its order keys are stalled for the
    /// same reason.
    pub fn all_stalled(partitions: &[Self]) -> (Vec<Stalled>, Vec<String>) {
        let (mut stalled, mut moving) = (Vec::new(), Vec::new());
        for partition in partitions {
            let it = partition.stalled();
            if it.as_ref().is_none_or(|it| it.cause.is_passing()) {
                moving.push(partition.name.clone());
            }
            stalled.extend(it);
        }
        (stalled, moving)
    }

    /// Adds the partition to the figures of its destination.
    pub(super) fn add_to(&self, figures: &mut DestinationFigures) {
        let unread = if self.looked < Self::EVENTS {
            Count::counted(self.unread, self.looked, Self::EVENTS)
        } else {
            Count {
                number: self.unread.max(self.about),
                kind: CountKind::About,
            }
        };
        figures.backlog.add(unread);
        let bound = Self::DELIVERIES;
        let up_to =
            |number: u64| Count::counted(number, i64::try_from(number).unwrap_or(bound), bound);
        figures.parked.add(up_to(self.parked));
        figures.dead.add(up_to(self.dead));
        let oldest = [self.oldest_unread, self.oldest_parked];
        let oldest = oldest.into_iter().flatten().min();
        let lag = oldest.map(|oldest| self.at.since(oldest));
        figures.lag = figures.lag.max(lag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_looked_at_before_the_deliveries() {
        let mut partition = status();
        assert_eq!(cause(&partition), None);
        partition.unread = 2;
        let last = None;
        assert_eq!(cause(&partition), Some(Cause::Unowned { last }));
        partition.node = Some("n1".to_owned());
        partition.any_lives = true;
        assert_eq!(
            cause(&partition).map(|it| it.as_str()),
            Some("owner_silent")
        );
        partition.lives = true;
        assert_eq!(cause(&partition), None);
        partition.oldest_unread = Some(Timestamp::from_millis(0));
        assert_eq!(cause(&partition), Some(Cause::NotSettling));
        partition.written_at = partition.at;
        assert_eq!(cause(&partition), None);
        partition.paused_at = Some(partition.at);
        let by = None;
        assert_eq!(cause(&partition), Some(Cause::Paused { by }));
        partition.disabled = Some((partition.at, "410 Gone".to_owned()));
        let reason = "410 Gone".to_owned();
        assert_eq!(cause(&partition), Some(Cause::Disabled { reason }));
    }

    #[test]
    fn a_retry_in_the_future_is_waited_for_and_an_overdue_one_is_not_settled() {
        let mut partition = status();
        (partition.lives, partition.parked) = (true, 1);
        let due = |due_at| NextRetry {
            position: 7,
            attempts: 3,
            due_at,
            error: None,
            changed_at: Timestamp::from_millis(5),
        };
        partition.next = Some(due(partition.at.after(PATIENCE)));
        let stalled = partition.stalled().unwrap();
        assert_eq!(stalled.cause.as_str(), "waits_for_retry");
        assert_eq!(
            (stalled.waiting, stalled.since),
            (1, Some(Timestamp::from_millis(5)))
        );
        partition.next = Some(due(Timestamp::from_millis(0)));
        assert_eq!(cause(&partition), Some(Cause::NotSettling));
        let (all, moving) = PartitionStatus::all_stalled(&[partition]);
        assert_eq!((all.len(), moving), (1, vec!["orders".to_owned()]));
    }

    fn cause(partition: &PartitionStatus) -> Option<Cause> {
        partition.stalled().map(|it| it.cause)
    }

    fn status() -> PartitionStatus {
        let start = Timestamp::from_millis(0);
        PartitionStatus {
            name: "orders".to_owned(),
            disabled: None,
            paused_at: None,
            paused_by: None,
            is_set_paused: false,
            node: None,
            lives: false,
            seen_at: None,
            any_lives: false,
            written_at: start,
            unread: 0,
            looked: 2,
            about: 0,
            oldest_unread: None,
            parked: 0,
            oldest_parked: None,
            dead: 0,
            next: None,
            at: start.after(Duration::from_hours(1)),
        }
    }
}
