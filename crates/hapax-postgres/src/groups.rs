//! Groups: requests that wait at the same time are written together, in one of a few lanes.
//!
//! A group consists of the requests that have arrived while all lanes were in use: there is no timer.
//! A request that waits alone is a group of one, and keeps later requests waiting like any other group,
//! so that they share the next one. How a group is written is up to its members.

use std::{collections::HashSet, future::Future, sync::Arc};

use hapax::{group::Waiting, key::Scope};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::postgres::{Handle, Postgres};

/// After this many bytes a group takes no more members: one that is sent longer keeps the next one
/// waiting. It may exceed this by its last member.
const GROUP_BYTES_MAX: usize = 1024 * 1024;

/// A request that is a member of a group.
pub(crate) trait Grouped: Send + Sized + 'static {
    /// The key of the request. No group has two members with the same key.
    fn scope(&self) -> &Scope;

    /// Whether the caller still waits. Called once, just before the request starts.
    fn is_wanted(&self) -> bool;

    /// The bytes of the request that count for the bound of a group.
    fn bytes(&self) -> usize;

    /// Writes a group and sends the results to its members. The lane is released when the next group
    /// may be sent.
    fn write(
        store: Postgres,
        members: Vec<Self>,
        lane: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send;

    /// Runs a member whose key another member of its group has.
    fn alone(store: Postgres, member: Self) -> impl Future<Output = ()> + Send;
}

/// Writes groups until the store is dropped or closed.
pub(crate) async fn dispatch<M: Grouped>(store: Handle, mut waiting: Waiting<M>, lanes: usize) {
    let lanes = Arc::new(Semaphore::new(lanes.max(1)));
    // The lane is acquired first: requests that arrive while all lanes are in use join the next
    // group.
    while let Ok(lane) = Arc::clone(&lanes).acquire_owned().await {
        let Some(first) = waiting.first().await else {
            break;
        };
        let Some(store) = store.upgrade() else { break };
        let (members, apart) = gather(first, &mut waiting);
        for member in apart {
            tokio::spawn(M::alone(store.clone(), member));
        }
        tokio::spawn(M::write(store, members, lane));
    }
}

/// Takes the waiting requests. Requests with the same key as another member are returned
/// separately.
fn gather<M: Grouped>(first: M, waiting: &mut Waiting<M>) -> (Vec<M>, Vec<M>) {
    let members_max = waiting.members();
    let (mut members, mut apart) = (Vec::new(), Vec::new());
    let mut scopes = HashSet::new();
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(member) = next {
        if member.is_wanted() {
            bytes += member.bytes();
            if scopes.insert(member.scope().clone()) {
                members.push(member);
            } else {
                apart.push(member);
            }
        }
        let is_full = members.len() + apart.len() >= members_max || bytes >= GROUP_BYTES_MAX;
        next = if is_full { None } else { waiting.another() };
    }
    (members, apart)
}
