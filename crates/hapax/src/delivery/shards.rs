//! Shards: how the events of one destination are divided among several nodes.
//!
//! Every event belongs to one of 16 shards, and all events of an aggregate to the same one. A
//! destination has 1, 2, 4, 8 or 16 partitions. A partition contains every shard, every second one,
//! every fourth one, and so on, so that the events of an order key are never in two partitions.

use std::num::NonZeroU8;

/// The number of shards.
pub const SHARDS: u8 = 16;

/// A set of shards. The default is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shards(u16);

impl Shards {
    /// All shards.
    pub const ALL: Self = Self(u16::MAX);
    /// No shard.
    pub const NONE: Self = Self(0);

    /// The shards of one partition of `partitions`.
    ///
    /// # Errors
    /// Fails if `partitions` is not 1, 2, 4, 8 or 16, or if there is no such partition.
    pub fn of_partition(partition: u8, partitions: NonZeroU8) -> Result<Self, ShardsError> {
        let partitions = partitions.get();
        if !SHARDS.is_multiple_of(partitions) || partition >= partitions {
            return Err(ShardsError);
        }
        let bits = (0..SHARDS).filter(|shard| shard % partitions == partition);
        Ok(Self(bits.fold(0, |set, shard| set | 1 << shard)))
    }

    /// Whether the set contains every shard.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// The set with this shard added. A shard that does not exist changes nothing.
    #[must_use]
    pub fn with(self, shard: u8) -> Self {
        if shard < SHARDS {
            Self(self.0 | 1 << shard)
        } else {
            self
        }
    }

    /// The shards of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains no shard.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether a shard is in both sets.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
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
pub fn partition(destination: &str, partition: u8, partitions: NonZeroU8) -> String {
    if partitions.get() == 1 {
        destination.to_owned()
    } else {
        format!("{destination}/{partition}")
    }
}

/// The number of partitions, or the number of the partition, is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a destination must have 1, 2, 4, 8 or 16 partitions")]
pub struct ShardsError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_of_a_destination_share_every_shard_and_none_twice() {
        for partitions in [1, 2, 4, 8, 16] {
            let mut seen = Vec::new();
            for number in 0..partitions {
                seen.extend(of(number, partitions).unwrap().iter());
            }
            seen.sort_unstable();
            assert_eq!(
                seen,
                (0..SHARDS).collect::<Vec<_>>(),
                "{partitions} partitions"
            );
        }
        assert!(of(0, 1).unwrap().is_all());
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for (number, partitions) in [(1, 1), (2, 2), (0, 3), (0, 32), (16, 16)] {
            assert_eq!(
                of(number, partitions),
                Err(ShardsError),
                "{number} of {partitions}"
            );
        }
    }

    #[test]
    fn a_set_contains_what_was_added() {
        let set = Shards::NONE.with(3).union(Shards::default().with(15));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 15]);
        assert_eq!(set.with(SHARDS), set);
        assert!(set.intersects(of(3, 4).unwrap()) && !set.intersects(of(0, 2).unwrap()));
        assert!(Shards::NONE.is_empty() && !set.is_empty());
        assert!(!Shards::NONE.intersects(Shards::ALL));
    }

    #[test]
    fn a_whole_destination_is_its_own_partition() {
        assert_eq!(partition("orders", 0, partitions(1)), "orders");
        assert_eq!(partition("orders", 3, partitions(4)), "orders/3");
    }

    fn of(number: u8, count: u8) -> Result<Shards, ShardsError> {
        Shards::of_partition(number, partitions(count))
    }

    fn partitions(count: u8) -> NonZeroU8 {
        NonZeroU8::new(count).unwrap()
    }
}
