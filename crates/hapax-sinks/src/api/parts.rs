//! Parts of a batch: each is sent as one request.
//!
//! A part has at most a number of items and, unless it has only one, a number of bytes. If a service
//! takes all of a request or nothing, a part that it refuses because of one of its items is divided
//! until that item is alone.

#[cfg(any(feature = "s3", feature = "pubsub"))]
use hapax::sink::{Outcome, Receipt, SinkError};

#[cfg(any(feature = "s3", feature = "pubsub"))]
use super::Failure;

/// The parts of a batch whose requests are taken completely or not at all, and the outcomes of the
/// items. Parts are sent in order, so the outcomes are in order too.
#[cfg(any(feature = "s3", feature = "pubsub"))]
pub(crate) struct Parts<'a, T> {
    /// The parts that have not been sent. The next one is the last.
    waiting: Vec<&'a [T]>,
    count: usize,
    outcomes: Vec<Outcome>,
}

#[cfg(any(feature = "s3", feature = "pubsub"))]
impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(
        items: &'a [T],
        bytes_of: impl Fn(&T) -> usize,
        count_max: usize,
        bytes_max: usize,
    ) -> Self {
        let mut waiting = parts(items, bytes_of, count_max, bytes_max);
        waiting.reverse();
        Self {
            waiting,
            count: items.len(),
            outcomes: Vec::with_capacity(items.len()),
        }
    }

    /// The part to send next. Its result is [recorded](Self::record) before another one is sent.
    pub(crate) fn pop(&mut self) -> Option<&'a [T]> {
        self.waiting.pop()
    }

    /// Records the result of a part. If its failure may be the fault of one of its items, `of_one`
    /// returns the outcome of an item that is alone.
    pub(crate) fn record(
        &mut self,
        part: &'a [T],
        result: Result<Receipt, Failure>,
        of_one: impl Fn(&Failure) -> Option<SinkError>,
    ) {
        match result {
            Ok(receipt) => {
                let taken = part.iter().map(|_| Ok(receipt.clone()));
                self.outcomes.extend(taken);
            }
            Err(failure) => match of_one(&failure) {
                Some(_) if part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    self.waiting.extend([right, left]);
                }
                Some(error) => self.outcomes.push(Err(error)),
                None => {
                    // The service would not take the other parts either.
                    self.waiting.clear();
                    let rest = self.outcomes.len()..self.count;
                    let rest = rest.map(|_| Err(failure.unavailable()));
                    self.outcomes.extend(rest);
                }
            },
        }
    }

    /// The outcomes of all items, after the last part.
    pub(crate) fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }
}

/// The parts, as slices of at most this many items and, unless it has only one, this many bytes.
pub(crate) fn parts<T>(
    items: &[T],
    bytes_of: impl Fn(&T) -> usize,
    count_max: usize,
    bytes_max: usize,
) -> Vec<&[T]> {
    let (mut parts, mut rest) = (Vec::new(), items);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |item: &&T| {
            bytes += bytes_of(*item);
            bytes <= bytes_max
        };
        let count = rest.iter().take(count_max).take_while(fits).count();
        let (part, after) = rest.split_at(count.max(1));
        parts.push(part);
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_by_number_and_by_bytes() {
        let of = |items: &[usize]| {
            let parts = parts(items, |item| *item, 3, 10);
            parts.into_iter().map(<[_]>::len).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[1, 1, 1, 1]), [3, 1]);
        assert_eq!(of(&[6, 4, 1]), [2, 1]);
        // An item that is too large is alone.
        assert_eq!(of(&[1, 11, 11, 1]), [1, 1, 1, 1]);
    }
}
