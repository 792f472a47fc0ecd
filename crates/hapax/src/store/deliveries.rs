//! The interface of a store for the relay's deliveries: where destinations start, ownership of
//! partitions, settlements, and parked deliveries.

use std::{future::Future, sync::Weak, time::Duration};

use super::StoreError;
use crate::{
    clock::Timestamp,
    dead_letter::DeadLetter,
    delivery::{
        Attempt, Backlog, KnownDestinations, Membership, Opened, OperatorSetting, Parked,
        Settlement, Start,
    },
};

/// The progress of a relay's deliveries: everything that a relay needs of a store besides its events.
pub trait Deliveries: Starts + Partitions + Summaries + DeadLetters {}

impl<S: Starts + Partitions + Summaries + DeadLetters> Deliveries for S {}

/// Where new destinations start in the outbox.
pub trait Starts: Clone + Send + Sync + 'static {
    /// Records where a destination starts, for the first opening of each of its partitions, however
    /// much later that is. Returns false, and changes nothing, if that is recorded already, if one
    /// of its partitions was ever opened, or if it is removed.
    ///
    /// An event is skipped only if its transaction was committed before this call. An event of a
    /// transaction that was open during the call is delivered if it commits afterwards. With
    /// [`Start::At`] the events before the first one that was created at that time or later are
    /// skipped, as far as they were committed. Events after it are delivered even if their time is earlier.
    fn record_start(
        &self,
        destination: &str,
        start: Start,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Ownership of the partitions of destinations, and the membership of relays.
pub trait Partitions: Clone + Send + Sync + 'static {
    /// Opens a partition: increments its epoch, which fences the previous owner. This does not
    /// check whether another node owns the partition, and after it no node does.
    ///
    /// An event that was offered but not settled when the last owner died becomes a parked delivery
    /// that is due at once, with that attempt counted. The same applies to a parked delivery whose
    /// attempt had started. Each leaves an interrupted attempt in the log. A first attempt that was
    /// interrupted is parked under the order key of its event, even if the destination keeps no
    /// order, so that no later event of the key overtakes it.
    ///
    /// A partition that is opened for the first time starts where
    /// [`record_start`](Starts::record_start) has recorded, or at the first event of the outbox if
    /// nothing was recorded for its destination. Opening a destination enables it.
    fn open(&self, destination: &str) -> impl Future<Output = Result<Opened, StoreError>> + Send;

    /// Takes a partition for `node`. Does the same as [`open`](Self::open), but returns `None` if
    /// another node owns the partition and has sent a heartbeat within `lease`, by the store's
    /// clock.
    ///
    /// A partition that `node` itself owns is taken again: a node is one process, not all processes
    /// that were ever started under its name. A partition that was never opened or that its owner
    /// has released can always be taken.
    fn take(
        &self,
        partition: &str,
        node: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<Opened>, StoreError>> + Send;

    /// Sends a heartbeat for `node` with the destinations that it knows. Returns all live nodes
    /// with the destinations that they know, and the owner of each partition.
    ///
    /// A node is live while its last heartbeat is younger than `lease`, by the store's clock.
    fn heartbeat(
        &self,
        node: &str,
        knows: &[String],
        lease: Duration,
    ) -> impl Future<Output = Result<Membership, StoreError>> + Send;

    /// Registers the destinations of a relay that has no node name and so sends no heartbeats. The
    /// relay keeps the other end while it runs. A store that several processes can open does not
    /// need this.
    fn follow(&self, known: Weak<KnownDestinations>) {
        let _ = known;
    }

    /// What operators have set for destinations after the change with the number `since`, in the
    /// order of the changes. A store that operators do not write to has none.
    fn operator_settings(
        &self,
        since: i64,
    ) -> impl Future<Output = Result<Vec<OperatorSetting>, StoreError>> + Send {
        let _ = since;
        async { Ok(Vec::new()) }
    }

    /// Releases a partition that is owned at `epoch`, so that another node can take it at once.
    /// Fenced if the epoch has changed. The owner has settled all its attempts before.
    fn give_up(
        &self,
        partition: &str,
        epoch: i64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes a node that stops. Partitions that it still owns can be taken at once.
    fn leave(&self, node: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// For each of these deliveries, counts the attempts that were interrupted although their relay
    /// was alive: another node took the partition because the relay had missed its heartbeats, and
    /// the relay has sent a heartbeat since. Deliveries without such attempts are left out.
    ///
    /// Such an attempt says nothing about its event. An attempt that was interrupted because its
    /// relay took its own partition again is not counted: the relay may have panicked because of
    /// the event.
    fn outlived(
        &self,
        partition: &str,
        positions: &[i64],
    ) -> impl Future<Output = Result<Vec<(i64, u32)>, StoreError>> + Send;
}

/// The outcomes of deliveries, and the deliveries that are still to be made.
pub trait Settlements: Clone + Send + Sync + 'static {
    /// Makes `Blocked` deliveries of a partition that is owned at `epoch` due now and removes their
    /// order key, for a destination that keeps no order. Such deliveries exist if the store parked
    /// them in bulk, without knowing the destination's order, or if the destination kept an order
    /// earlier.
    ///
    /// Processes up to `limit` parked deliveries at positions after `after` and returns the last
    /// position that was processed. Returns `None` if there are none left, or if the partition has
    /// another owner.
    fn ignore_keys(
        &self,
        partition: &str,
        epoch: i64,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Option<i64>, StoreError>> + Send;

    /// Records outcomes in one transaction, if `epoch` still owns the destination.
    ///
    /// Otherwise, and for a destination that was never opened, the settlement is fenced and nothing
    /// changes. A settlement that [is written once](Settlement::is_once), and whose number was
    /// written before, changes nothing again.
    ///
    /// The store decides which deliveries block others. A delivery of an order key is *unfinished*
    /// while it is `Retrying`, `Blocked` or `Dead`. A delivery that is to be parked as `Blocked`
    /// while its key has no unfinished delivery at a lower position is written as `Retrying`, due
    /// now, instead. For each key in `release`, the unfinished delivery with the lowest position
    /// becomes `Retrying` and due now, with no attempt made, if it is `Blocked`.
    ///
    /// Returns those keys of `release` that have no unfinished delivery left.
    fn settle(
        &self,
        settlement: Settlement,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Order keys of a partition that have an unfinished delivery, without duplicates and in order,
    /// at most `limit`.
    fn blocked_keys(
        &self,
        partition: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Those of `keys` that have an unfinished delivery, in any order. Everything that was settled
    /// before this call is taken into account.
    fn blocked(
        &self,
        partition: &str,
        keys: &[String],
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Parked deliveries that are due and not in `except`, starting with the one that was due
    /// first, and by position if the due times are equal. Blocked and dead deliveries are never
    /// due.
    ///
    /// Each delivery that blocks its order key is followed by up to `behind` `Blocked` deliveries
    /// of the same key, by position, up to the first that is not `Blocked`. They save the caller
    /// one read for each. The total is at most `limit`.
    ///
    /// The read ends early when the stored size exceeds [`crate::limits::READ_BYTES`], as in
    /// [`Source::read`](super::Source::read), and returns at least one delivery if there is one.
    fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
        behind: usize,
    ) -> impl Future<Output = Result<Vec<Parked>, StoreError>> + Send;

    /// The time at which the next parked delivery is due, in the past or in the future; `None` if
    /// there is no such delivery.
    fn next_due(
        &self,
        destination: &str,
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// The backlog of a destination. If it was never opened, this is what has been committed since
    /// its recorded start.
    fn backlog(
        &self,
        destination: &str,
    ) -> impl Future<Output = Result<Backlog, StoreError>> + Send;
}

/// What a relay reads for all of its partitions together. A store without round trips needs none of
/// these methods.
pub trait Summaries: Settlements {
    /// Those of these partitions that have a parked delivery which is due now, by the clock of the
    /// store. A delivery with a running attempt may count or not.
    fn due_of(
        &self,
        partitions: &[String],
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send {
        async move {
            let mut due = Vec::new();
            for partition in partitions {
                if !self.due(partition, &[], 1, 0).await?.is_empty() {
                    due.push(partition.clone());
                }
            }
            Ok(due)
        }
    }

    /// The backlog of each partition, as [`Settlements::backlog`] returns it.
    fn backlogs(
        &self,
        partitions: &[String],
    ) -> impl Future<Output = Result<Vec<(String, Backlog)>, StoreError>> + Send {
        async move {
            let mut backlogs = Vec::with_capacity(partitions.len());
            for partition in partitions {
                backlogs.push((partition.clone(), self.backlog(partition).await?));
            }
            Ok(backlogs)
        }
    }
}

/// Dead letters, and the attempts at a delivery.
pub trait DeadLetters: Clone + Send + Sync + 'static {
    /// All attempts at one delivery, in order, starting with the first that arrived.
    fn attempts(
        &self,
        partition: &str,
        position: i64,
    ) -> impl Future<Output = Result<Vec<Attempt>, StoreError>> + Send;

    /// Dead letters of a destination after the given position, by position, at most `limit`.
    fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send;

    /// Makes a dead letter due again, as if it had never been tried. Returns false if there is
    /// none.
    ///
    /// The delivery keeps its order key, and its old attempts stay in the log.
    fn replay(
        &self,
        destination: &str,
        position: i64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Discards a dead letter permanently, with a reason, and unblocks its order key. Returns false
    /// if there is none.
    fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
