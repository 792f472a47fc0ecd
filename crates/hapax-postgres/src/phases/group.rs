//! Groups of entries and responses: one statement, which is one transaction in one round trip.
//!
//! The group decides nothing. A key that it has not written goes on alone in the task of its caller,
//! with the statements that find out why. So do all members of a group that has failed, and a member
//! that is alone in its group. If the result of a group is lost, so is that of each member, as it would be
//! alone: its caller does not know whether it is committed.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    group::{StartOnce, answered},
    key::Scope,
    phases::{Entry, Ownership},
    store::StoreError,
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::timeout,
};
use tokio_postgres::Row;

use super::entering::entered;
use crate::{
    connection::CommitError,
    error::unavailable,
    groups::Grouped,
    idempotency::{parts, retention, scope_of},
    phase_member::{Attempt, Finish, PhaseMember, Reply, Written},
    postgres::Postgres,
    query,
    value::{Moment, Param, millis},
};

/// A larger request or response is sent alone: it would keep its group waiting, and what it costs is
/// not the commit.
const MEMBER_BYTES_MAX: usize = 64 * 1024;
/// How long a statement keeps its lane. After that the next group is sent beside it.
const LANE_MAX: Duration = Duration::from_millis(200);

/// Waits until the group of an entry is written.
pub(super) async fn enter(
    store: &Postgres,
    attempt: &Arc<Attempt>,
) -> Result<Written<Ownership>, StoreError> {
    let bytes = entry_bytes(&attempt.entry);
    let attempt = Arc::clone(attempt);
    write_in_group(store, bytes, |reply| PhaseMember::Enter(attempt, reply)).await
}

/// Waits until the group of a response is written.
pub(super) async fn finish(
    store: &Postgres,
    finish: &Arc<Finish>,
) -> Result<Written<()>, StoreError> {
    let bytes = finish_bytes(finish);
    let finish = Arc::clone(finish);
    write_in_group(store, bytes, |reply| PhaseMember::Finish(finish, reply)).await
}

async fn write_in_group<T>(
    store: &Postgres,
    bytes: usize,
    member: impl FnOnce(Reply<T>) -> PhaseMember,
) -> Result<Written<T>, StoreError> {
    if store.settings().group_max <= 1 || bytes > MEMBER_BYTES_MAX {
        return Ok(Written::Left(None));
    }
    let (reply, written) = oneshot::channel();
    let member = member(reply);
    let closed = || unavailable("the store is closed");
    // There is no deadline, so nothing but the group takes the turn.
    let turn = StartOnce::default();
    answered(store.phase_queue(), member, &turn, written, None, closed).await
}

/// Runs a statement, and releases the lane when it has ended or takes long.
pub(super) async fn in_lane<R>(
    lane: Option<OwnedSemaphorePermit>,
    statement: impl Future<Output = R>,
) -> R {
    let Some(lane) = lane else {
        return statement.await;
    };
    let mut statement = pin!(statement);
    let ended = timeout(LANE_MAX, statement.as_mut()).await;
    drop(lane);
    match ended {
        Ok(result) => result,
        Err(_) => statement.await,
    }
}

impl Grouped for PhaseMember {
    fn scope(&self) -> &Scope {
        match self {
            Self::Enter(attempt, _) => &attempt.entry.claim.scope,
            Self::Finish(finish, _) => &finish.owned.scope,
        }
    }

    fn is_wanted(&self) -> bool {
        self.has_caller()
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Enter(attempt, _) => entry_bytes(&attempt.entry),
            Self::Finish(finish, _) => finish_bytes(finish),
        }
    }

    async fn write(store: Postgres, mut members: Vec<Self>, lane: OwnedSemaphorePermit) {
        if members.len() > 1 {
            return write(&store, members, lane).await;
        }
        if let Some(member) = members.pop() {
            member.leave(Some(lane));
        }
    }

    async fn alone(_: Postgres, member: Self) {
        member.leave(None);
    }
}

async fn write(store: &Postgres, members: Vec<PhaseMember>, lane: OwnedSemaphorePermit) {
    let written = {
        let columns = Columns::of(&members, store.time());
        let params = columns.params();
        let statement = store.try_commit(query!("idempotency/enter_and_finish_all"), &params);
        in_lane(Some(lane), statement).await
    };
    match written {
        Ok(rows) => settle(members, &rows),
        Err(CommitError { cause, is_unknown }) => {
            let why = cause.error_chain();
            tracing::debug!(error = why, "a group of keys has failed");
            let is_unreachable = matches!(cause, StoreError::Unavailable { .. });
            for member in members {
                if is_unknown {
                    member.lose(unavailable(why.clone()));
                } else if is_unreachable {
                    member.fail(unavailable(why.clone()));
                } else {
                    // The other members need not fail because of one of them.
                    member.leave(None);
                }
            }
        }
    }
}

/// Sends the results to the members of a group that is committed.
fn settle(members: Vec<PhaseMember>, rows: &[Row]) {
    let written: HashMap<[&str; 3], &Row> = rows.iter().map(|row| (scope_of(row), row)).collect();
    for member in members {
        match member {
            PhaseMember::Enter(attempt, reply) => {
                let entry = &attempt.entry;
                let row = written.get(&parts(&entry.claim.scope)).copied();
                let owned = row.map(|row| entered(entry, row)).transpose();
                respond(reply, owned);
            }
            PhaseMember::Finish(finish, reply) => {
                let is_written = written.contains_key(&parts(&finish.owned.scope));
                respond(reply, Ok(is_written.then_some(())));
            }
        }
    }
}

fn respond<T>(reply: Reply<T>, written: Result<Option<T>, StoreError>) {
    let written = written.map(|written| written.map_or(Written::Refused, Written::Committed));
    // A caller that has gone does not need the result.
    let _gone = reply.send(written);
}

fn entry_bytes(entry: &Entry) -> usize {
    entry.request.as_ref().map_or(0, Bytes::len)
}

fn finish_bytes(finish: &Finish) -> usize {
    finish.response.headers.len() + finish.response.body.len()
}

/// The members of a group as the columns of one statement.
#[derive(Default)]
struct Columns<'a> {
    time: Option<Moment>,
    entries: Entries<'a>,
    responses: Responses<'a>,
}

#[derive(Default)]
struct Entries<'a> {
    scopes: [Vec<&'a str>; 3],
    fingerprints: Vec<&'a [u8]>,
    leases: Vec<i64>,
    requests: Vec<Option<&'a [u8]>>,
    on_expired: Vec<&'a str>,
    retentions: Vec<i64>,
    recovery_points: Vec<Option<&'a str>>,
    ids: Vec<&'a str>,
}

#[derive(Default)]
struct Responses<'a> {
    scopes: [Vec<&'a str>; 3],
    epochs: Vec<i64>,
    created_at: Vec<Moment>,
    states: Vec<&'a str>,
    statuses: Vec<i16>,
    headers: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    retentions: Vec<i64>,
    resource_ids: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(members: &'a [PhaseMember], time: Option<Moment>) -> Self {
        let mut columns = Self {
            time,
            ..Self::default()
        };
        for member in members {
            match member {
                PhaseMember::Enter(attempt, _) => columns.entries.push(attempt),
                PhaseMember::Finish(finish, _) => columns.responses.push(finish),
            }
        }
        columns
    }

    fn params(&self) -> [&dyn Param; 22] {
        let Self {
            time,
            entries,
            responses,
        } = self;
        [
            time,
            &entries.scopes[0],
            &entries.scopes[1],
            &entries.scopes[2],
            &entries.fingerprints,
            &entries.leases,
            &entries.requests,
            &entries.on_expired,
            &entries.retentions,
            &entries.recovery_points,
            &responses.scopes[0],
            &responses.scopes[1],
            &responses.scopes[2],
            &responses.epochs,
            &responses.created_at,
            &responses.states,
            &responses.statuses,
            &responses.headers,
            &responses.bodies,
            &responses.retentions,
            &responses.resource_ids,
            &entries.ids,
        ]
    }
}

impl<'a> Entries<'a> {
    fn push(&mut self, attempt: &'a Attempt) {
        let Attempt { entry, id } = attempt;
        let claim = &entry.claim;
        push_scope(&mut self.scopes, &claim.scope);
        self.fingerprints.push(claim.fingerprint.as_bytes());
        self.leases.push(millis(entry.lease));
        self.requests.push(entry.request.as_deref());
        self.on_expired.push(claim.on_expired.name());
        self.retentions.push(millis(retention(claim)));
        self.recovery_points.push(entry.recovery_point.as_deref());
        self.ids.push(id);
    }
}

impl<'a> Responses<'a> {
    fn push(&mut self, finish: &'a Finish) {
        let Finish { owned, response } = finish;
        push_scope(&mut self.scopes, &owned.scope);
        self.epochs.push(owned.epoch);
        self.created_at.push(Moment(owned.created_at));
        self.states.push(response.state());
        self.statuses.push(response.status);
        self.headers.push(&response.headers);
        self.bodies.push(&response.body);
        self.retentions.push(millis(owned.retention));
        self.resource_ids.push(response.resource_id.as_deref());
    }
}

fn push_scope<'a>(scopes: &mut [Vec<&'a str>; 3], scope: &'a Scope) {
    for (column, part) in scopes.iter_mut().zip(parts(scope)) {
        column.push(part);
    }
}
