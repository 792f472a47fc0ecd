//! What a store offers the relay about deliveries: ownership of parts, settlements, and what is parked.

use std::{future::Future, sync::Weak, time::Duration};

use super::StoreError;
use crate::{
    clock::Timestamp,
    dead_letter::DeadLetter,
    delivery::{Attempt, Attendance, KnownDestinations, Opened, Parked, Settlement, Standing},
};

/// What the relay writes down about its deliveries.
pub trait Deliveries: Clone + Send + Sync + 'static {
    /// Opens a part: raises its epoch, so that whoever had it before is fenced. Nobody is asked, and
    /// no node holds it then.
    ///
    /// What was offered and not settled when the last owner died becomes a parked delivery,
    /// due at once, with that attempt counted; so does a parked delivery whose attempt had begun.
    /// Each leaves an attempt in the log that was interrupted. A first offer that was cut off is
    /// parked under its event's own order key, whatever order the destination keeps, so that
    /// nothing of its key overtakes it.
    ///
    /// A destination seen for the first time starts at the first event of the outbox. Opening
    /// enables a destination.
    fn open(&self, destination: &str) -> impl Future<Output = Result<Opened, StoreError>> + Send;

    /// Takes a part for `node`, if nobody else holds it: as [`open`](Self::open), but `None` while
    /// another node holds it that gave a sign of life within `lease`, by the store's clock.
    ///
    /// A part that `node` itself holds is taken anew: a node is one process, and not all that were
    /// ever started under a name. Nobody is asked about a part whose holder
    /// gave it up, or that was never opened.
    fn take(
        &self,
        part: &str,
        node: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<Opened>, StoreError>> + Send;

    /// Gives a sign of life for `node`, which knows these destinations, and says which nodes live,
    /// what they know, and who holds what.
    ///
    /// A node lives while its last sign is younger than `lease`, by the store's clock.
    fn attend(
        &self,
        node: &str,
        knows: &[String],
        lease: Duration,
    ) -> impl Future<Output = Result<Attendance, StoreError>> + Send;

    /// Is told what a relay knows that has no node name and so gives no signs of life. The relay
    /// holds the other end for as long as it runs. A store that may have relays in other processes
    /// has no use for it.
    fn follow(&self, known: Weak<KnownDestinations>) {
        let _ = known;
    }

    /// Lets a part go that `epoch` holds, so that another node may take it at once; fenced
    /// otherwise. Its owner has settled what it offered.
    fn give_up(
        &self,
        part: &str,
        epoch: i64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets a node that ends: what it still holds may be taken at once.
    fn leave(&self, node: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How many attempts at each of these deliveries were cut off while their relay lived on: another
    /// node took the part because the relay was silent, and it has shown since that it lives. Nothing
    /// is said of those without any.
    ///
    /// Such an attempt says nothing about its event. One that was cut off by a relay which took its own
    /// part anew is not meant: it may have panicked over the event.
    fn outlived(
        &self,
        part: &str,
        positions: &[i64],
    ) -> impl Future<Output = Result<Vec<(i64, u32)>, StoreError>> + Send;

    /// Has what is `Blocked` at a part that `epoch` holds fall due now, without its order key: for a
    /// destination that keeps no order. A store that parks in bulk does not know that, nor does what
    /// was parked while it kept one.
    ///
    /// Looks at up to `limit` parked deliveries at positions after `after`, and says up to where; `None`
    /// where there are none left, or the part is somebody else's.
    fn ignore_keys(
        &self,
        part: &str,
        epoch: i64,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Option<i64>, StoreError>> + Send;

    /// Every attempt at one delivery, in order, with the first that arrived.
    fn attempts(
        &self,
        part: &str,
        position: i64,
    ) -> impl Future<Output = Result<Vec<Attempt>, StoreError>> + Send;

    /// Writes down what happened, in one transaction, if `epoch` still owns the destination.
    ///
    /// Otherwise, and for a destination that was never opened, it is fenced and nothing changes. One
    /// that [is written once](Settlement::is_once), and by its number is, changes no delivery again.
    ///
    /// The store knows best what stands in the way of what. A delivery of an order key is
    /// *unfinished* while it is `Retrying`, `Blocked` or `Dead`. One that is to be parked as
    /// `Blocked` with no unfinished delivery of its key at a lower position is written as
    /// `Retrying`, due now, instead. For each key in `release` the lowest unfinished delivery,
    /// if it is `Blocked`, becomes `Retrying`, due now, with no attempt made.
    ///
    /// Returns those keys of `release` that have no unfinished delivery left: they are free.
    fn settle(
        &self,
        settlement: Settlement,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Order keys of a part that have an unfinished delivery, each once and in order, at most `limit`.
    fn blocked_keys(
        &self,
        part: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Those of `keys` that have an unfinished delivery, in any order: whatever was settled before it
    /// is asked counts.
    fn blocked(
        &self,
        part: &str,
        keys: &[String],
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Parked deliveries that are due, none of `except`: the longest due first, and by position
    /// where they fell due together. Blocked and dead ones never are.
    ///
    /// They are followed by what is `Blocked` behind each that holds a key up: up to `behind` of
    /// its key, by position, and no further than to one that is not. Whoever has those in hand
    /// need not come back for each. All in all there are at most `limit`.
    ///
    /// It stops earlier once what they are stored in exceeds [`crate::limits::READ_BYTES`], as
    /// [`Source::read`](super::Source::read) does, and reads at least one if there is one.
    fn due(
        &self,
        destination: &str,
        except: &[i64],
        limit: usize,
        behind: usize,
    ) -> impl Future<Output = Result<Vec<Parked>, StoreError>> + Send;

    /// When the next parked delivery falls due, past or future; `None` when none ever does.
    fn next_due(
        &self,
        destination: &str,
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// How far behind a destination is.
    fn standing(
        &self,
        destination: &str,
    ) -> impl Future<Output = Result<Standing, StoreError>> + Send;

    /// Dead letters of a destination after the given position, by position, at most `limit`.
    fn dead_letters(
        &self,
        destination: &str,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send;

    /// Makes a dead letter due again, as if never tried; false when there is none.
    ///
    /// It keeps its order key, and its old attempts stay in the log.
    fn replay(
        &self,
        destination: &str,
        position: i64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Gives a dead letter up for good, with a reason, and lets its key go; false when none.
    fn discard(
        &self,
        destination: &str,
        position: i64,
        reason: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
