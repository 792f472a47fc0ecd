//! Snapshots that limit a job to the events that were counted before it.

use std::{fmt, str::FromStr};

use hapax::{Timestamp, admin::AdminError, store::StoreError};

use crate::{error::corrupt, postgres::Postgres, query, value::Moment};

/// A snapshot of the events that were visible at a time. Clients pass it as text from a count to a
/// job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// One more than the highest assigned position.
    pub(super) until: i64,
    /// When it was taken, by the database's clock.
    pub(super) at: Timestamp,
    /// The visible transactions, and the database and cluster in which they are numbered.
    pub(super) snapshot: String,
}

/// The text is not a [`Seen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the `seen` that a count has returned")]
pub(super) struct NotSeen;

impl Seen {
    /// Parses a snapshot that a client passes.
    pub(super) fn parse(text: &str) -> Result<Self, AdminError> {
        let seen = text.parse();
        seen.map_err(|error: NotSeen| AdminError::invalid("seen", error.to_string()))
    }

    /// Takes a snapshot now.
    pub(super) async fn now(store: &Postgres) -> Result<Self, StoreError> {
        let seen = store.ask(query!("admin/seen"), &[]).await?;
        let missing = || corrupt("seen: the query returned no row");
        let row = seen.first().ok_or_else(missing)?;
        let (snapshot, Moment(at)) = (row.get(0), row.get(1));
        let drawn = store.ask(query!("admin/last_id"), &[]).await?;
        let last: i64 = drawn.first().map_or(0, |row| row.get(0));
        Ok(Self {
            until: last.saturating_add(1),
            at,
            snapshot,
        })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            until,
            at,
            snapshot,
        } = self;
        write!(f, "{until} {} {snapshot}", at.as_millis())
    }
}

impl FromStr for Seen {
    type Err = NotSeen;

    fn from_str(text: &str) -> Result<Self, NotSeen> {
        let mut parts = text.splitn(3, ' ');
        let mut part = || parts.next().ok_or(NotSeen);
        let until = part()?.parse().map_err(|_| NotSeen)?;
        let at = part()?.parse().map_err(|_| NotSeen)?;
        let snapshot = part()?;
        let (numbers, history) = snapshot.split_once(" - ").ok_or(NotSeen)?;
        if !is_snapshot(numbers) || history.contains(char::is_whitespace) {
            return Err(NotSeen);
        }
        Ok(Self {
            until,
            at: Timestamp::from_millis(at),
            snapshot: snapshot.to_owned(),
        })
    }
}

/// Whether the database accepts the text as a snapshot; otherwise every batch of a job would fail.
fn is_snapshot(text: &str) -> bool {
    let mut parts = text.split(':');
    let (Some(first), Some(next), Some(open), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let number = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| plain)
    };
    let (Some(first), Some(next)) = (number(first), number(next)) else {
        return false;
    };
    let open: Option<Vec<u64>> = match open {
        "" => Some(Vec::new()),
        open => open.split(',').map(number).collect(),
    };
    open.is_some_and(|open| {
        let inside = open.iter().all(|it| (first..next).contains(it));
        0 < first && first <= next && inside && open.is_sorted()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_reads_back_as_it_was_written() {
        for snapshot in ["100:100: - 7/1", "100:105:100,103 - 7"] {
            let seen = Seen {
                until: 12,
                at: Timestamp::from_millis(34),
                snapshot: snapshot.to_owned(),
            };
            assert_eq!(seen.to_string().parse(), Ok(seen));
        }
    }

    #[test]
    fn what_the_database_would_refuse_is_refused() {
        for snapshot in [
            "", "100", "1:2", "0:1:", "2:1:", "1:2:2", "1:9:5,3", "1:2:x", "+1:2:", "1:2:1:",
        ] {
            let text = format!("1 2 {snapshot} - 7");
            assert_eq!(text.parse::<Seen>(), Err(NotSeen), "{text:?}");
        }
        for text in [
            "",
            "1",
            "1 2",
            "1 2 1:2:",
            "x 2 1:2: - 7",
            "1 x 1:2: - 7",
            "1 2 1:2: - 7 8",
        ] {
            assert_eq!(text.parse::<Seen>(), Err(NotSeen), "{text:?}");
        }
    }
}
