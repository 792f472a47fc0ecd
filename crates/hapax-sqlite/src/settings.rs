//! Settings of a store: its file, clock, randomness and bounds.

use std::{path::PathBuf, time::Duration};

use hapax::{
    Clock, Random, failpoint::Failpoints, keyring::Keyring, limits, operational::OperationalEvents,
    outbox::EventCheck,
};

/// The settings with which a store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The database file, which is created if it is missing. The files `-wal`, `-shm` and `.lock`
    /// are beside it.
    pub path: PathBuf,
    /// The only clock for leases, expiries and schedules.
    pub clock: Clock,
    /// The source of event ids.
    pub random: Random,
    /// Called directly before and after every commit.
    pub failpoints: Failpoints,
    /// Encrypts and decrypts stored responses, kept requests and payloads. Empty by default, which
    /// stores them in the clear.
    pub keyring: Keyring,
    /// Checks events that are emitted through this store. None by default.
    pub event_check: EventCheck,
    /// The operational events that relays of this store emit. None by default.
    pub operational_events: OperationalEvents,
    /// The most requests that share one commit; 1 turns groups off.
    pub group_max: usize,
    /// How long a transaction may hold the writer before it is rolled back.
    pub tx_max: Duration,
    /// The number of connections that read.
    pub readers: usize,
    /// Whether a thread merges the write-ahead log into the database beside the writer. If false,
    /// the commit that makes the log long merges it, and the requests that wait are late.
    pub merges_beside: bool,
    /// The most pages that the file may have; `None` means as many as the disk holds.
    pub pages_max: Option<u32>,
}

impl Settings {
    /// The defaults, for the database at `path`.
    pub fn new(path: impl Into<PathBuf>, clock: Clock, random: Random) -> Self {
        Self {
            path: path.into(),
            clock,
            random,
            failpoints: Failpoints::none(),
            keyring: Keyring::default(),
            event_check: EventCheck::none(),
            operational_events: OperationalEvents::none(),
            group_max: 128,
            tx_max: limits::TRANSACTION,
            readers: 3,
            merges_beside: true,
            pages_max: None,
        }
    }
}
