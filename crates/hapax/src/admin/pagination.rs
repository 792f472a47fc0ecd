//! Cursors of lists that are ordered by time, with microsecond precision.
//!
//! A cursor is the time of the last row of a page, and a number that distinguishes rows of the same
//! time.

use std::{fmt, str::FromStr};

use super::{AdminError, read_cursor};
use crate::clock::Timestamp;

/// The start of a page, which is after a row. As text it is the `next` of the previous page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The time of the row, in microseconds since the Unix epoch.
    pub micros: i64,
    /// A number that distinguishes rows of the same time.
    pub tie: i64,
}

/// The first and the last time at which a page can begin: years 1 to 9999.
const MOMENTS: (i64, i64) = (-62_135_596_800_000_000, 253_402_300_799_000_000);

impl Cursor {
    /// The start of a page: after the row whose cursor is `before`, before the time `until`, or at
    /// the newest row.
    ///
    /// # Errors
    /// `Invalid` if the text is not a cursor of the list.
    pub fn of(before: Option<&str>, until: Option<Timestamp>) -> Result<Self, AdminError> {
        let behind = read_cursor(before, |text| text.parse().ok())?;
        Ok(Self::behind(behind, until))
    }

    /// The cursor of a row, in a store whose times are milliseconds.
    pub fn at(moment: Timestamp, tie: i64) -> Self {
        let micros = micros(moment);
        Self { micros, tie }
    }

    fn behind(behind: Option<Self>, until: Option<Timestamp>) -> Self {
        let before = until.map_or(MOMENTS.1, |until| micros(until).clamp(MOMENTS.0, MOMENTS.1));
        let before = Self {
            micros: before,
            tie: i64::MIN,
        };
        behind.map_or(before, |behind| Self {
            micros: behind.micros.clamp(MOMENTS.0, MOMENTS.1),
            tie: behind.tie,
        })
    }

    /// The start of the next page: after the last row of a full page (`last`), or where the search
    /// ended (`ended`), if it read the maximum number of rows and did not pass the time `since`.
    pub fn next(
        last: Option<Self>,
        ended: Option<Self>,
        since: Option<Timestamp>,
    ) -> Option<String> {
        let ended = ended.filter(|end| since.is_none_or(|since| end.micros >= micros(since)));
        last.or(ended).map(|cursor| cursor.to_string())
    }

    /// The cursor in a store whose times are milliseconds: rows of an earlier time come after it,
    /// and rows of the same time with a lower number.
    pub fn millis(self) -> (i64, i64) {
        match self.micros.rem_euclid(1_000) {
            0 => (self.micros.div_euclid(1_000), self.tie),
            _ => (self.micros.div_euclid(1_000) + 1, i64::MIN),
        }
    }
}

fn micros(at: Timestamp) -> i64 {
    at.as_millis().saturating_mul(1_000)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.micros, self.tie)
    }
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a time in microseconds and a number, separated by a dot")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (micros, tie) = text.split_once('.').ok_or(NoCursor)?;
        Ok(Self {
            micros: micros.parse().map_err(|_| NoCursor)?,
            tie: tie.parse().map_err(|_| NoCursor)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_from_its_text() {
        let cursor = Cursor {
            micros: 1_764_000_000_123_456,
            tie: i64::MIN,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in [
            "",
            "1",
            "1.",
            ".1",
            "1.x",
            "1.2.3",
            "1.5e3",
            "99999999999999999999.1",
        ] {
            assert_eq!(wrong.parse::<Cursor>(), Err(NoCursor), "{wrong}");
        }
    }

    #[test]
    fn a_page_begins_behind_a_row_or_before_a_moment() {
        let until = Some(Timestamp::from_millis(2));
        let row = Cursor { micros: 5, tie: 7 };
        assert_eq!(
            Cursor::behind(None, until).to_string(),
            format!("2000.{}", i64::MIN)
        );
        assert_eq!(Cursor::behind(Some(row), until), row);
        // A time that no store can represent.
        let far = Timestamp::from_millis(i64::MAX);
        assert_eq!(Cursor::behind(None, Some(far)), Cursor::behind(None, None));
    }

    #[test]
    fn a_cursor_between_two_milliseconds_is_before_the_later_one() {
        let millis = |micros| Cursor { micros, tie: 7 }.millis();
        assert_eq!(millis(2_000), (2, 7));
        assert_eq!(millis(2_001), (3, i64::MIN));
        assert_eq!(millis(-1), (0, i64::MIN));
        let at = Cursor::at(Timestamp::from_millis(2), 7);
        assert_eq!(at.millis(), (2, 7));
    }
}
