//! Events as they are committed, for `hapax events tail` and `hapax listen`.
//!
//! Events are read once a second. An event whose transaction commits late has a lower position than
//! some that were returned before; it is returned when it is seen. What one read costs does not
//! depend on the number of events in the outbox, even if few of them match the filter. While the
//! database does not respond, it is asked again once a second, and no event is lost.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, Write as _},
    time::Duration,
};

use hapax::{
    admin::{AdminError, EventFilter, EventSummary, Page},
    store::StoreError,
};
use tokio::time::sleep;

use super::Failure;
use crate::admin::command_context::{CommandContext, read_pages};

/// How often new events are read, and how often a database that does not respond is asked again.
const POLL: Duration = Duration::from_secs(1);
/// How many events are read at once.
const READ: usize = 200;
/// How many matching events that were seen before are read each time, before the reading of older
/// ones stops. An event that commits later than this many newer ones that match is not returned.
const LATE: usize = 1_000;
/// How many positions before the end of the outbox are read each time, whether their events match or
/// not.
const WINDOW: i64 = 10_000;
/// How many reads, one a second, go back to the same position at least. Positions have gaps: on
/// PostgreSQL they jump when the outbox goes on in its next segment, and an event may still commit
/// before the gap.
const READS: usize = 30;
/// How many positions are remembered. This has to be more than [`LATE`].
const SEEN: usize = 10_000;

/// The events that match a filter, and which of them were returned already.
#[derive(Debug)]
pub(super) struct Follow {
    /// Events up to its position `after` are not new, whenever they commit.
    filter: EventFilter,
    /// The positions after it that are not new.
    seen: BTreeSet<i64>,
    /// The end of the outbox at each of the last [`READS`] reads, the oldest first.
    ends: VecDeque<i64>,
}

impl Follow {
    /// Reads the latest events, at most `count`, and follows the events after them. Returns them with
    /// the oldest first.
    ///
    /// Without a count, only events in the last part of the outbox are read, to know what is not
    /// new.
    pub(super) async fn start(
        cx: &CommandContext,
        mut filter: EventFilter,
        count: Option<usize>,
    ) -> Result<(Self, Vec<EventSummary>), Failure> {
        let end = end(cx).await?;
        let floor = Some(end.saturating_sub(WINDOW));
        if count.is_none() {
            filter.after = floor;
        }
        let limit = count.unwrap_or(LATE);
        let Page {
            mut items,
            mut next,
        } = read_events(cx, &filter, None, limit).await?;
        filter.after = floor;
        let mut seen: BTreeSet<i64> = items.iter().map(|it| it.position).collect();
        if next.is_some() && seen.len() < LATE {
            let older = read_events(cx, &filter, next, LATE - seen.len()).await?;
            seen.extend(older.items.iter().map(|it| it.position));
            next = older.next;
        }
        // Events that are older than these were not read, so none of them is known to be new.
        let oldest = seen.first().copied().filter(|_| next.is_some());
        filter.after = filter.after.max(oldest);
        items.reverse();
        let follow = Self {
            filter,
            seen,
            ends: VecDeque::from([end]),
        };
        Ok((follow, items))
    }

    /// Waits, and returns the events that were committed since the last call, the oldest first.
    pub(super) async fn new_events(
        &mut self,
        cx: &CommandContext,
    ) -> Result<Vec<EventSummary>, Failure> {
        sleep(POLL).await;
        let (end, mut new) = with_patience(async || self.read(cx).await).await?;
        self.seen.extend(new.iter().map(|it| it.position));
        self.move_on(end);
        new.reverse();
        Ok(new)
    }

    /// Forgets what is too far from the end of the outbox to be read again.
    fn move_on(&mut self, end: i64) {
        self.ends.push_back(end);
        if self.ends.len() > READS {
            self.ends.pop_front();
        }
        let oldest_end = self.ends.front().copied().unwrap_or(end);
        let mut after = oldest_end.min(end.saturating_sub(WINDOW));
        after = self.filter.after.map_or(after, |before| before.max(after));
        self.seen.retain(|position| *position > after);
        while self.seen.len() > SEEN {
            after = self.seen.pop_first().unwrap_or(after);
        }
        self.filter.after = Some(after);
    }

    /// The end of the outbox, and the events that were not seen before, the newest first.
    async fn read(&self, cx: &CommandContext) -> Result<(i64, Vec<EventSummary>), AdminError> {
        // The end is read first, so that what is committed meanwhile is after it.
        let end = end(cx).await?;
        Ok((end, self.unseen(cx).await?))
    }

    /// The events that were not seen before, the newest first.
    async fn unseen(&self, cx: &CommandContext) -> Result<Vec<EventSummary>, AdminError> {
        let (mut new, mut read, mut before) = (Vec::new(), 0, None);
        loop {
            let Page { items, next } = read_events(cx, &self.filter, before, READ).await?;
            read += items.len();
            new.extend(items.into_iter().filter(|it| self.is_new(it)));
            before = next;
            if before.is_none() || read - new.len() >= LATE {
                return Ok(new);
            }
        }
    }

    fn is_new(&self, event: &EventSummary) -> bool {
        !self.seen.contains(&event.position)
    }
}

/// The position of the newest event in the outbox; 0 if there is none.
async fn end(cx: &CommandContext) -> Result<i64, AdminError> {
    let newest = read_events(cx, &EventFilter::default(), None, 1).await?;
    Ok(newest.items.first().map_or(0, |it| it.position))
}

/// Reads at most `limit` events, the newest first.
async fn read_events(
    cx: &CommandContext,
    filter: &EventFilter,
    before: Option<String>,
    limit: usize,
) -> Result<Page<EventSummary>, AdminError> {
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().events(&cx.actor, filter, before, limit);
        page.await
    };
    read_pages(before, limit, read).await
}

/// Reads until the database responds, once a second. Standard error says when it stops to respond
/// and when it responds again.
///
/// # Errors
/// An error of another kind, which another read would not change.
pub(super) async fn with_patience<T>(
    read: impl AsyncFn() -> Result<T, AdminError>,
) -> Result<T, AdminError> {
    let mut is_waiting = false;
    loop {
        let error = match read().await {
            Err(error) if is_passing(&error) => error,
            ended => {
                if is_waiting && ended.is_ok() {
                    say("the database responds again");
                }
                return ended;
            }
        };
        if !is_waiting {
            let Failure { error_chain, .. } = error.into();
            say(&format!(
                "the database does not respond, and is asked again every second: {error_chain}"
            ));
        }
        is_waiting = true;
        sleep(POLL).await;
    }
}

fn is_passing(error: &AdminError) -> bool {
    use StoreError::{Conflict, TimedOut, Unavailable};
    matches!(
        error,
        AdminError::Busy | AdminError::Store(Unavailable { .. } | TimedOut | Conflict { .. })
    )
}

/// Prints a line on standard error, whether a reader of it is left or not.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "hapax: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position up to which events are not new, after reads with these ends of the outbox.
    fn after(seen: impl IntoIterator<Item = i64>, ends: &[i64]) -> (Option<i64>, usize) {
        let mut follow = Follow {
            filter: EventFilter::default(),
            seen: seen.into_iter().collect(),
            ends: VecDeque::new(),
        };
        for end in ends {
            follow.move_on(*end);
        }
        (follow.filter.after, follow.seen.len())
    }

    #[test]
    fn a_read_reaches_back_10_000_positions_and_over_a_gap_for_30_reads() {
        let (rotated, next) = (7 << 36, 8 << 36);
        assert_eq!(after([], &[20_000; READS]), (Some(10_000), 0));
        assert_eq!(after([], &[20_000, 5]), (Some(10_000), 0));
        let mut ends = vec![rotated + 50_000];
        ends.extend([next; READS - 1]);
        assert_eq!(after([], &ends), (Some(rotated + 50_000), 0));
        ends.push(next);
        assert_eq!(after([], &ends), (Some(next - WINDOW), 0));
    }

    #[test]
    fn what_is_not_read_again_is_forgotten_and_no_more_than_10_000_are_remembered() {
        assert_eq!(after(1..=20_000, &[20_000]), (Some(10_000), 10_000));
        assert_eq!(after(1..=12_000, &[12_000]), (Some(2_000), 10_000));
        assert_eq!(after(1..=12_000, &[5_000]), (Some(2_000), 10_000));
        assert_eq!(after([1, 2], &[3]), (Some(3 - WINDOW), 2));
    }
}
