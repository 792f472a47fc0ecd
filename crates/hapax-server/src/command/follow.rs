//! Events as they are committed, for `hapax events tail` and `hapax listen`.
//!
//! Events are read once a second. An event whose transaction commits late has a lower position than
//! some that were returned before; it is returned when it is seen.

use std::{collections::BTreeSet, time::Duration};

use hapax::admin::{EventFilter, EventSummary, Page};
use tokio::time::sleep;

use super::Failure;
use crate::admin::command_context::{CommandContext, read_pages};

/// How often new events are read.
const POLL: Duration = Duration::from_secs(1);
/// How many events are read at once.
pub(super) const READ: usize = 200;
/// How many positions are remembered. An event that commits later than this many others is not
/// returned.
pub(super) const SEEN: usize = 10_000;

/// The events that match a filter, and which of them were returned already.
#[derive(Debug)]
pub(super) struct Follow {
    filter: EventFilter,
    /// Events up to this position are not new, whenever they are read.
    floor: i64,
    seen: BTreeSet<i64>,
}

impl Follow {
    /// Reads the latest events, at most `count`. Returns them with the oldest first, and follows the
    /// events after them.
    pub(super) async fn start(
        cx: &CommandContext,
        filter: EventFilter,
        count: usize,
    ) -> Result<(Self, Vec<EventSummary>), Failure> {
        let Page { mut items, next } = read_events(cx, &filter, None, count).await?;
        // If there are no older events, everything is new.
        let oldest = items.last().map(|it| it.position);
        let floor = oldest.filter(|_| next.is_some()).unwrap_or(0);
        let seen = items.iter().map(|it| it.position).collect();
        items.reverse();
        let follow = Self {
            filter,
            floor,
            seen,
        };
        Ok((follow, items))
    }

    /// Waits, and returns the events that were committed since the last call, the oldest first.
    pub(super) async fn new_events(
        &mut self,
        cx: &CommandContext,
    ) -> Result<Vec<EventSummary>, Failure> {
        sleep(POLL).await;
        let mut new = self.unseen(cx).await?;
        self.seen.extend(new.iter().map(|it| it.position));
        while self.seen.len() > SEEN {
            self.seen.pop_first();
        }
        new.reverse();
        Ok(new)
    }

    /// The events that were not seen before, the newest first.
    async fn unseen(&self, cx: &CommandContext) -> Result<Vec<EventSummary>, Failure> {
        let forgotten = self.seen.first().filter(|_| self.seen.len() >= SEEN);
        let floor = forgotten.copied().unwrap_or(self.floor);
        let is_new = |it: &EventSummary| it.position > floor && !self.seen.contains(&it.position);
        let (mut new, mut before) = (Vec::new(), None);
        loop {
            let read = read_events(cx, &self.filter, before, READ).await?;
            let (count, known) = (read.items.len(), new.len());
            new.extend(read.items.into_iter().filter(is_new));
            before = read.next;
            // A page with an event that was seen reaches back far enough.
            if before.is_none() || new.len() - known < count {
                return Ok(new);
            }
        }
    }
}

/// Reads at most `limit` events, the newest first.
pub(super) async fn read_events(
    cx: &CommandContext,
    filter: &EventFilter,
    before: Option<String>,
    limit: usize,
) -> Result<Page<EventSummary>, Failure> {
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().events(&cx.actor, filter, before, limit);
        page.await
    };
    Ok(read_pages(before, limit, read).await?)
}
