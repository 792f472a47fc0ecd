//! Conformance suite for event sources, one named test per requirement.
//!
//! A crate with a source implements [`SourceUnderTest`] and calls
//! [`source_suite!`](crate::source_suite). Every test then runs with a fresh source. The
//! requirements are documented in [`hapax::store::Source`]: committed events are read once,
//! unchanged and in order, and nothing else is read.
//!
//! A test writes like the users of the source, in their own transactions, and reads like the relay.
//! It knows neither tables nor columns.

#![expect(
    clippy::missing_panics_doc,
    reason = "a conformance test panics when a requirement is violated"
)]

pub mod reading;
pub mod writers;
pub mod readers;
pub mod shards;
mod fixture;

use hapax::store::Source;

pub use fixture::Written;

/// A source for the suite: fresh, with writers, and with restarts.
pub trait SourceUnderTest: Sized + Send + Sync + 'static {
    /// The source.
    type Source: Source;
    /// An open transaction of a writer.
    type Writer: Send;

    /// Whether two writers can have open transactions at the same time.
    const WRITES_AT_ONCE: bool;
    /// Whether events have an aggregate.
    const HAS_AGGREGATES: bool;

    /// An empty source for this test only.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// The same source after a restart of its reader.
    fn reopen(self) -> impl Future<Output = Self> + Send;

    /// The source of this reader.
    fn source(&self) -> &Self::Source;

    /// The source of another reader, in another process if possible.
    fn beside(&self) -> impl Future<Output = Self::Source> + Send;

    /// Opens a transaction of a writer.
    fn begin(&self) -> impl Future<Output = Self::Writer> + Send;

    /// Writes an event in the transaction.
    ///
    /// Its payload is [`Written::payload`]. If events have an aggregate, it is [`Written::key`].
    fn write(writer: &mut Self::Writer, event: &Written) -> impl Future<Output = ()> + Send;

    /// Commits the transaction.
    fn commit(writer: Self::Writer) -> impl Future<Output = ()> + Send;

    /// Rolls the transaction back.
    fn roll_back(writer: Self::Writer) -> impl Future<Output = ()> + Send;
}

/// Runs the conformance suite for a source: one test per requirement, named after it.
///
/// The argument is the name of a type that implements
/// [`SourceUnderTest`](crate::source::SourceUnderTest) and is in scope at the macro call.
#[macro_export]
macro_rules! source_suite {
    ($source:ident) => {
        $crate::suite! { $source, source,
            reading {
                nothing_is_read_of_a_source_that_is_empty
                every_committed_event_is_read_once_and_whole
                nothing_is_read_of_what_was_rolled_back
                what_is_not_committed_is_not_read_yet
                a_batch_holds_no_more_than_was_asked_for
                a_batch_of_large_events_ends_early
                an_event_is_the_same_however_often_it_is_read
                positions_rise_from_batch_to_batch
            }
            writers {
                what_commits_late_is_read_and_nothing_is_read_again
                a_writer_held_open_delays_no_other
                a_reader_among_writers_loses_and_repeats_nothing
                a_large_transaction_is_read_in_its_order
            }
            readers {
                a_frontier_leads_on_after_a_restart
                a_frontier_in_the_middle_leads_on_after_a_restart
                a_reader_that_is_behind_reads_all_of_it
                two_readers_at_once_read_the_same
            }
            shards {
                the_partitions_share_every_event_and_none_twice
                events_about_one_thing_are_in_one_partition
                a_partition_keeps_its_order
                a_look_names_the_shards_that_have_events
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_law_that_is_written_is_on_the_list() {
        crate::conformance::check_list(
            include_str!("mod.rs"),
            &[
                ("reading", include_str!("reading.rs")),
                ("writers", include_str!("writers.rs")),
                ("readers", include_str!("readers.rs")),
                ("shards", include_str!("shards.rs")),
            ],
        );
    }
}
