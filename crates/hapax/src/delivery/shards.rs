//! Shards: how the events of one destination are shared among several nodes.
//!
//! Every event is in one of 16 shards, and all events of one aggregate are in
//! the same. A destination is carried whole or in 2, 4, 8 or 16 parts; a part
//! takes every second, fourth, ... shard, and so no key is ever in two of them.

use std::num::NonZeroU8;

/// How many shards there are.
pub const SHARDS: u8 = 16;

/// A set of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shards(u16);

impl Shards {
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);

    /// The shards of one part of `parts`.
    ///
    /// # Errors
    /// Fails when `parts` is not 1, 2, 4, 8 or 16, or when there is no such part.
    pub fn of_part(part: u8, parts: NonZeroU8) -> Result<Self, ShardsError> {
        let parts = parts.get();
        if !SHARDS.is_multiple_of(parts) || part >= parts {
            return Err(ShardsError);
        }
        let bits = (0..SHARDS).filter(|shard| shard % parts == part);
        Ok(Self(bits.fold(0, |set, shard| set | 1 << shard)))
    }

    /// Whether it is every shard.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Whether a shard is among them.
    pub fn contains(self, shard: u8) -> bool {
        shard < SHARDS && self.0 & (1 << shard) != 0
    }

    /// The shards, in order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..SHARDS).filter(move |shard| self.contains(*shard))
    }
}

/// The name that a store knows a part of a destination by: the destination's own where it is whole.
pub fn part(destination: &str, part: u8, parts: NonZeroU8) -> String {
    if parts.get() == 1 {
        destination.to_owned()
    } else {
        format!("{destination}/{part}")
    }
}

/// A destination cannot be divided so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a destination has 1, 2, 4, 8 or 16 parts")]
pub struct ShardsError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_destination_share_every_shard_and_none_twice() {
        for parts in [1, 2, 4, 8, 16] {
            let mut seen = Vec::new();
            for number in 0..parts {
                seen.extend(of(number, parts).unwrap().iter());
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..SHARDS).collect::<Vec<_>>(), "{parts} parts");
        }
        assert!(of(0, 1).unwrap().is_all());
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for (number, parts) in [(1, 1), (2, 2), (0, 3), (0, 32), (16, 16)] {
            assert_eq!(of(number, parts), Err(ShardsError), "{number} of {parts}");
        }
    }

    #[test]
    fn a_whole_destination_is_its_own_part() {
        assert_eq!(part("orders", 0, parts(1)), "orders");
        assert_eq!(part("orders", 3, parts(4)), "orders/3");
    }

    fn of(number: u8, count: u8) -> Result<Shards, ShardsError> {
        Shards::of_part(number, parts(count))
    }

    fn parts(count: u8) -> NonZeroU8 {
        NonZeroU8::new(count).unwrap()
    }
}
