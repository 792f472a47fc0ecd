//! Store: effects and keys in an append-only file, and the keys that are running.
//!
//! A commit is one line: the effect and the key, or neither. The line is synced before its response
//! is sent; a line that a kill cut short is dropped when the file is read again. Running keys
//! are known in memory only, so that a kill frees them.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{bugs::Bug, clock, orders::Order, response::Response, route::Kind};

/// Keys that [`Bug::ReplayReexecutesAfterMany`] keeps.
const KEPT_ROWS: usize = 100;
/// Retention of [`Bug::ReplayExpiresAfterOneSecond`].
const SHORT_RETENTION: Duration = Duration::from_secs(1);

/// Where a key is unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) struct Scope {
    /// 0, unless a bug separates the nodes.
    pub(crate) node: usize,
    pub(crate) principal: String,
    pub(crate) operation: String,
    pub(crate) key: String,
}

/// A completed key.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Row {
    pub(crate) scope: Scope,
    pub(crate) fingerprint: String,
    pub(crate) response: Response,
    /// Time since the Unix epoch.
    pub(crate) stored_at: Duration,
}

/// The outcome of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// The key is the caller's, who has to commit or to release it.
    Open,
    Replay(Response),
    /// Another payload; with the stored response, if the first request has completed.
    Mismatch(Option<Response>),
    InProgress,
    /// Completed, and older than the retention.
    Expired,
}

/// A line of the file.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row: Option<Row>,
    /// Only with [`Bug::KillLeavesKeyLocked`]: the key runs from here, with this fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked: Option<(Scope, String)>,
    /// Only with that bug: the key was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unlocked: Option<Scope>,
}

/// A running key: its scope and, with [`Bug::RaceOnSecondNode`], its node.
type Lock = (Scope, usize);

#[derive(Debug)]
struct State {
    file: File,
    orders: Vec<Order>,
    rows: HashMap<Scope, Row>,
    /// Scopes in the order in which they were first completed.
    completed: Vec<Scope>,
    /// With the fingerprint of the request; `None` is in progress for every payload.
    running: HashMap<Lock, Option<String>>,
    tried: HashSet<Scope>,
}

/// The store that both nodes share.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    /// Changes when a key is completed or released.
    changes: watch::Sender<u64>,
    retention: Duration,
    /// Whether an expired key is refused rather than new.
    is_gone_after_expiry: bool,
    bug: Option<Bug>,
}

impl Store {
    /// Opens the file, or creates it.
    pub(crate) fn open(
        path: &Path,
        retention: Duration,
        is_gone_after_expiry: bool,
        bug: Option<Bug>,
    ) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n');
        let complete = complete.map_or(0, |end| end + 1);
        file.set_len(u64::try_from(complete).map_err(io::Error::other)?)?;
        let mut state = State {
            file,
            orders: Vec::new(),
            rows: HashMap::new(),
            completed: Vec::new(),
            running: HashMap::new(),
            tried: HashSet::new(),
        };
        for line in bytes[..complete].split_inclusive(|byte| *byte == b'\n') {
            state.apply(serde_json::from_slice(line)?, bug);
        }
        Ok(Self {
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            retention,
            is_gone_after_expiry,
            bug,
        })
    }

    /// Takes a key for the request with this fingerprint, unless it is taken.
    pub(crate) fn claim(&self, scope: &Scope, node: usize, fingerprint: &str) -> io::Result<Claim> {
        let mut state = self.state();
        if let Some(outcome) = self.outcome(&state, scope, node, fingerprint) {
            return Ok(outcome);
        }
        if self.bug == Some(Bug::KillLeavesKeyLocked) {
            let locked = Some((scope.clone(), fingerprint.to_owned()));
            state.append(&Line {
                locked,
                ..Line::default()
            })?;
        }
        let lock = self.lock(scope, node);
        state.running.insert(lock, Some(fingerprint.to_owned()));
        Ok(Claim::Open)
    }

    /// The outcome that a claim would have, without taking the key.
    pub(crate) fn look_up(&self, scope: &Scope, node: usize, fingerprint: &str) -> Claim {
        let state = self.state();
        let outcome = self.outcome(&state, scope, node, fingerprint);
        outcome.unwrap_or(Claim::Open)
    }

    /// Stores an effect and a completed key, in one line, and releases the key.
    pub(crate) fn commit(
        &self,
        node: usize,
        order: Option<Order>,
        row: Option<Row>,
    ) -> io::Result<()> {
        let lock = row.as_ref().map(|row| self.lock(&row.scope, node));
        let line = Line {
            order,
            row,
            ..Line::default()
        };
        let mut state = self.state();
        if self.bug == Some(Bug::ReplayFromMemoryOnly) {
            let order = line.order.clone();
            state.append(&Line {
                order,
                ..Line::default()
            })?;
        } else if line.order.is_some() || line.row.is_some() {
            state.append(&line)?;
        }
        if let Some(lock) = lock {
            state.running.remove(&lock);
        }
        state.apply(line, self.bug);
        drop(state);
        self.changes.send_modify(|number| *number += 1);
        Ok(())
    }

    /// Releases a key: the next request with it is executed.
    pub(crate) fn release(&self, scope: &Scope, node: usize) -> io::Result<()> {
        let mut state = self.state();
        if self.bug == Some(Bug::KillLeavesKeyLocked) {
            let unlocked = Some(scope.clone());
            state.append(&Line {
                unlocked,
                ..Line::default()
            })?;
        }
        state.running.remove(&self.lock(scope, node));
        drop(state);
        self.changes.send_modify(|number| *number += 1);
        Ok(())
    }

    /// Leaves a key in progress for every payload, until a restart.
    pub(crate) fn poison(&self, scope: &Scope, node: usize) {
        let lock = self.lock(scope, node);
        self.state().running.entry(lock).or_insert(None);
    }

    /// Whether this is the first try of a key at an outcome that differs the second time.
    pub(crate) fn is_first_try(&self, scope: &Scope) -> bool {
        self.state().tried.insert(scope.clone())
    }

    /// A receiver that is notified when a key is completed or released.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The effects of a principal, of one kind or of all.
    pub(crate) fn orders(&self, principal: &str, kind: Option<Kind>) -> Vec<Order> {
        let state = self.state();
        let orders = state.orders.iter();
        let orders = orders.filter(|order| order.principal == principal);
        let orders = orders.filter(|order| kind.is_none_or(|kind| order.kind == kind));
        orders.cloned().collect()
    }

    /// The outcome of a claim on a key that is taken; `None` if it is free.
    fn outcome(
        &self,
        state: &State,
        scope: &Scope,
        node: usize,
        fingerprint: &str,
    ) -> Option<Claim> {
        let is_forgotten = self.bug == Some(Bug::FingerprintForgotten);
        if let Some(running) = state.running.get(&self.lock(scope, node)) {
            let is_same = running.as_ref().is_none_or(|known| known == fingerprint)
                || is_forgotten
                || self.bug == Some(Bug::MismatchWhileRunningIsInProgress);
            return Some(if is_same {
                Claim::InProgress
            } else {
                Claim::Mismatch(None)
            });
        }
        let row = state.rows.get(scope)?;
        let age = clock::since_epoch().saturating_sub(row.stored_at);
        if self.bug == Some(Bug::ReplayExpiresAfterOneSecond) && age > SHORT_RETENTION {
            return None;
        }
        if self.bug != Some(Bug::ExpiredNever) && age > self.retention {
            return self.is_gone_after_expiry.then_some(Claim::Expired);
        }
        let response = row.response.clone();
        Some(if row.fingerprint == fingerprint || is_forgotten {
            Claim::Replay(response)
        } else {
            Claim::Mismatch(Some(response))
        })
    }

    fn lock(&self, scope: &Scope, node: usize) -> Lock {
        let is_of_node = self.bug == Some(Bug::RaceOnSecondNode);
        (scope.clone(), if is_of_node { node } else { 0 })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes a line that survives a kill.
    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }

    fn apply(&mut self, line: Line, bug: Option<Bug>) {
        self.orders.extend(line.order);
        if let Some((scope, fingerprint)) = line.locked {
            self.running.insert((scope, 0), Some(fingerprint));
        }
        if let Some(scope) = line.unlocked {
            self.running.remove(&(scope, 0));
        }
        let Some(row) = line.row else {
            return;
        };
        self.running.remove(&(row.scope.clone(), 0));
        let scope = row.scope.clone();
        if self.rows.insert(scope.clone(), row).is_none() {
            self.completed.push(scope);
        }
        if bug == Some(Bug::ReplayReexecutesAfterMany) && self.completed.len() > KEPT_ROWS {
            let oldest = self.completed.remove(0);
            self.rows.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
