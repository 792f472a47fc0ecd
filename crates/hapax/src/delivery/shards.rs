//! Shards: how the events of one destination are divided among several nodes.
//!
//! Every event belongs to one of 16 shards, and all events of an aggregate to the same one. A
//! destination has 1, 2, 4, 8 or 16 partitions. A partition contains every shard, every second one,
//! every fourth one, and so on, so that the events of an order key are never in two partitions.

use std::num::NonZeroU8;

/// The number of shards.
pub const SHARDS: u8 = 16;

/// A set of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shards(u16);

impl Shards {
    /// All shards.
    pub const ALL: Self = Self(u16::MAX);

    /// The shards of one partition of `parts`.
    ///
    /// # Errors
    /// Fails if `parts` is not 1, 2, 4, 8 or 16, or if there is no such partition.
    pub fn of_part(part: u8, parts: NonZeroU8) -> Result<Self, ShardsError> {
        let parts = parts.get();
        if !SHARDS.is_multiple_of(parts) || part >= parts {
            return Err(ShardsError);
        }
        let bits = (0..SHARDS).filter(|shard| shard % parts == part);
        Ok(Self(bits.fold(0, |set, shard| set | 1 << shard)))
    }

    /// Whether the set contains every shard.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Whether the set contains this shard.
    pub fn contains(self, shard: u8) -> bool {
        shard < SHARDS && self.0 & (1 << shard) != 0
    }

    /// The shards, in order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..SHARDS).filter(move |shard| self.contains(*shard))
    }
}

/// The name of a partition in the store. A destination with one partition has the destination's
/// name.
pub fn part(destination: &str, part: u8, parts: NonZeroU8) -> String {
    if parts.get() == 1 {
        destination.to_owned()
    } else {
        format!("{destination}/{part}")
    }
}

/// The number of partitions, or the number of the partition, is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a destination must have 1, 2, 4, 8 or 16 parts")]
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
