//! Sets of positions as text: ranges in order, such as `5-9,12`.
//!
//! The positions that a destination has settled after its frontier are mostly consecutive, so
//! thousands of positions take some bytes. A text in any other form is refused as a whole.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::limits::WINDOW_EVENTS;

/// Maximum number of positions in one text, so that a damaged row cannot fill the memory.
const POSITIONS_MAX: usize = 16 * WINDOW_EVENTS;

/// Formats a set.
pub fn write(positions: &BTreeSet<i64>) -> String {
    let mut text = String::new();
    let mut rest = positions.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        if !text.is_empty() {
            text.push(',');
        }
        let wrote = if first == last {
            write!(text, "{first}")
        } else {
            write!(text, "{first}-{last}")
        };
        debug_assert!(wrote.is_ok(), "writing to a string never fails");
    }
    text
}

/// Parses a set; `None` if the text is not valid.
pub fn parse(text: &str) -> Option<BTreeSet<i64>> {
    let mut positions = BTreeSet::new();
    if text.is_empty() {
        return Some(positions);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        let count = usize::try_from(last.checked_sub(first)?)
            .ok()?
            .checked_add(1)?;
        if first < 0 || positions.len().checked_add(count)? > POSITIONS_MAX {
            return None;
        }
        positions.extend(first..=last);
    }
    Some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_reads_back_as_it_was_written() {
        check(&[], "");
        check(&[7], "7");
        check(&[5, 6, 7, 8, 9, 12], "5-9,12");
        check(&[1, 3, 4, i64::MAX], "1,3-4,9223372036854775807");
    }

    #[test]
    fn a_text_that_is_no_set_is_refused() {
        for bad in [
            "x",
            "1,",
            "5-",
            "-5",
            "9-5",
            "1-9223372036854775807",
            "0-99999999",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[track_caller]
    fn check(positions: &[i64], text: &str) {
        let positions: BTreeSet<_> = positions.iter().copied().collect();
        assert_eq!(write(&positions), text);
        assert_eq!(parse(text), Some(positions));
    }
}
