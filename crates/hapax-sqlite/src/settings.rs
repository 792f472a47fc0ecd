//! What a store needs to be opened: where, and with what clock, chance and bounds.

use std::{path::PathBuf, time::Duration};

use hapax::{Clock, Random, failpoint::Failpoints, keyring::Keyring, limits};

/// How a store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The database file; made when it is missing. Beside it stand `-wal`, `-shm` and `.lock`.
    pub path: PathBuf,
    /// The only clock that leases, expiries and schedules are judged by.
    pub clock: Clock,
    /// Where event ids come from.
    pub random: Random,
    /// Whom to tell just before and just after every commit.
    pub failpoints: Failpoints,
    /// What encrypts answers, kept requests and payloads, and decrypts them; nothing by default.
    pub keyring: Keyring,
    /// The most requests that share one commit; one turns groups off.
    pub group_max: usize,
    /// How long a transaction may hold the writer before it is rolled back.
    pub tx_max: Duration,
    /// How many connections read.
    pub readers: usize,
    /// The most pages that the file may grow to; none means as many as the disk holds.
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
            group_max: 128,
            tx_max: limits::TRANSACTION,
            readers: 3,
            pages_max: None,
        }
    }
}
