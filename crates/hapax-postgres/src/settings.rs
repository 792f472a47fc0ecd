//! What a store needs to be opened: where, and with what clock, chance and bounds.

use std::{fmt, path::PathBuf, time::Duration};

use hapax::{Clock, Random, failpoint::Failpoints, keyring::Keyring, limits};

/// How a store is opened.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The database, as `postgres://user:password@host:port/database?sslmode=require`.
    pub url: String,
    /// Certificate authorities (PEM) that the server's certificate is checked against; the web's
    /// when absent. `sslrootcert` in the URL says the same.
    pub root_certificates: Option<PathBuf>,
    /// What events, schedules and deliveries are stamped and judged by.
    pub clock: Clock,
    /// What keys and the inbox are judged by.
    pub time: Time,
    /// Where event ids come from.
    pub random: Random,
    /// Whom to tell just before and just after every commit.
    pub failpoints: Failpoints,
    /// What encrypts answers, kept requests and payloads, and decrypts them; nothing by default.
    pub keyring: Keyring,
    /// Whether missing tables are made at the start, or asked for.
    pub schema: Schema,
    /// Whether a transaction-mode pooler stands before the database: nothing is then kept on a
    /// connection between two transactions, neither prepared statements nor settings.
    pub pooled: bool,
    /// The most connections of this node.
    pub connections: usize,
    /// The most single-shot requests that share one commit; one turns groups off.
    pub group_max: usize,
    /// How many groups may be on the wire at once. One makes the largest groups and costs the least
    /// for each request; more are for a database that is far away.
    pub lanes: usize,
    /// How long a claim waits for the same key's transaction on another node.
    pub wait: Duration,
    /// How long one statement may run, and one flight may take.
    pub statement_max: Duration,
    /// How long a transaction may wait for its next statement.
    pub idle_max: Duration,
    /// How long a connection may take to be made, or to come out of the pool.
    pub connect_max: Duration,
    /// How often a transaction is run again that lost against another one.
    pub reruns_max: u32,
}

/// Whose time judges keys.
#[derive(Clone, Debug, Default)]
pub enum Time {
    /// The database's own: nodes whose clocks differ decide alike.
    #[default]
    Database,
    /// A clock that a test turns.
    Given(Clock),
}

/// What is done about tables that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schema {
    /// They are made: the role may create.
    #[default]
    Apply,
    /// They are asked for: opening fails and says what to run.
    Check,
}

impl Settings {
    /// The defaults, for the database at `url`.
    pub fn new(url: impl Into<String>, clock: Clock, random: Random) -> Self {
        Self {
            url: url.into(),
            root_certificates: None,
            clock,
            time: Time::Database,
            random,
            failpoints: Failpoints::none(),
            keyring: Keyring::default(),
            schema: Schema::Apply,
            pooled: false,
            connections: 16,
            group_max: 128,
            lanes: 1,
            wait: limits::WAIT,
            statement_max: limits::HANDLER,
            idle_max: limits::HANDLER,
            connect_max: Duration::from_secs(5),
            reruns_max: limits::RERUNS,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL holds a password.
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}
