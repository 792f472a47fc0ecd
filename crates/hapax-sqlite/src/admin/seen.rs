//! Snapshots that limit a job to the events and dead letters that were counted before it.
//!
//! Events have ids in commit order, and dead letters are numbered in the order in which they died. A
//! snapshot is the last number of each, so it is exact and independent of clocks.

use std::{fmt, str::FromStr};

use hapax::admin::AdminError;

use super::view::View;
use crate::query;

/// A snapshot of the events and dead letters that were visible at a time. Clients pass it as text
/// from a count to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// One more than the highest position of an event.
    pub(super) until: i64,
    /// The number of the last dead letter.
    pub(super) deaths: i64,
}

/// The text is not a [`Seen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSeen;

impl Seen {
    /// Takes a snapshot now.
    pub(super) fn now(view: &View<'_>) -> Result<Self, AdminError> {
        let last = view.first(query!("outbox/last"), [], |row| row.get(0))?;
        let deaths = view.first(query!("admin/deaths"), [], |row| row.get(0))?;
        let last: i64 = last.unwrap_or(0);
        Ok(Self {
            until: last.saturating_add(1),
            deaths: deaths.unwrap_or(0),
        })
    }

    /// Parses a snapshot that a client passes. A snapshot that is newer than the database was taken
    /// before a backup was restored, and would include letters that were not counted.
    pub(super) fn read(view: &View<'_>, text: &str) -> Result<Self, AdminError> {
        let wrong = |problem| AdminError::invalid("seen", problem);
        let seen: Self = text
            .parse()
            .map_err(|NotSeen| wrong("must be the `seen` that a count has returned"))?;
        let now = Self::now(view)?;
        if seen.deaths > now.deaths {
            return Err(wrong("is newer than the database: count again"));
        }
        Ok(seen)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.until, self.deaths)
    }
}

impl FromStr for Seen {
    type Err = NotSeen;

    fn from_str(text: &str) -> Result<Self, NotSeen> {
        let (until, deaths) = text.split_once(' ').ok_or(NotSeen)?;
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| plain).ok_or(NotSeen)
        };
        Ok(Self {
            until: number(until)?,
            deaths: number(deaths)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_as_it_is_shown() {
        let seen = Seen {
            until: 70,
            deaths: 3,
        };
        assert_eq!(seen.to_string().parse(), Ok(seen));
        for wrong in ["", "7", "7 ", " 7", "7 x", "7 3 1", "-7 3", "7  3", "+7 3"] {
            assert_eq!(wrong.parse::<Seen>(), Err(NotSeen), "{wrong:?}");
        }
    }
}
