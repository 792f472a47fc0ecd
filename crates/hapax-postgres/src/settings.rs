//! Settings of a store: its database, clock, source of randomness and limits.
//!
//! `Debug` does not print them, because the URL contains a password.

use std::{fmt, path::PathBuf, time::Duration};

use hapax::{
    Clock, Random, failpoint::Failpoints, keyring::Keyring, limits, operational::OperationalEvents,
    outbox::EventCheck,
};

/// The settings with which a store is opened.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The database, as `postgres://user:password@host:port/database?sslmode=require`.
    pub url: String,
    /// Certificate authorities (PEM) with which the server's certificate is checked. The public
    /// authorities of the web by default. Same as `sslrootcert` in the URL.
    pub root_certificates: Option<PathBuf>,
    /// The clock for timestamps and due times of events, schedules and deliveries.
    pub clock: Clock,
    /// The clock for keys and the inbox.
    pub time: Time,
    /// The source of randomness, for event ids.
    pub random: Random,
    /// Failpoints that are reached just before and just after every commit.
    pub failpoints: Failpoints,
    /// Encrypts and decrypts stored responses, kept requests and payloads. Empty by default, which
    /// means that nothing is encrypted.
    pub keyring: Keyring,
    /// Checks events that are emitted through this store. None by default.
    pub event_check: EventCheck,
    /// The operational events that relays of this store emit. None by default.
    pub operational_events: OperationalEvents,
    /// Whether missing tables are created when the store is opened.
    pub schema: Schema,
    /// Whether the store connects through a transaction-mode pooler. If so, nothing is kept on a
    /// connection between two transactions, neither prepared statements nor settings.
    pub pooled: bool,
    /// Maximum number of connections of this node.
    pub connections: usize,
    /// Maximum number of single-shot requests, or of entries and responses of phased ones, that share
    /// one commit; 1 disables groups.
    pub group_max: usize,
    /// Maximum number of groups of each of these two kinds that are sent at the same time. With 1,
    /// groups are largest and the cost per request is lowest. Higher values are for a database with a
    /// long round-trip time.
    pub lanes: usize,
    /// How long a claim waits for the same key's transaction on another node.
    pub wait: Duration,
    /// How long one statement, or one pipeline of statements, may take.
    pub statement_max: Duration,
    /// How long a transaction may wait for its next statement.
    pub idle_max: Duration,
    /// How long it may take to connect, or to get a connection from the pool.
    pub connect_max: Duration,
    /// How often a transaction is run again after a conflict with another one.
    pub reruns_max: u32,
}

/// The clock that decides about leases and expiry of keys.
#[derive(Clone, Debug, Default)]
pub enum Time {
    /// The database's clock: nodes whose clocks differ decide alike.
    #[default]
    Database,
    /// A clock that a test controls.
    Given(Clock),
}

/// What happens if tables are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schema {
    /// The store creates them. Its role needs the privilege to create tables.
    #[default]
    Apply,
    /// Opening fails with an error that says which schema has to be migrated.
    Check,
}

impl Settings {
    /// Creates the default settings for the database at `url`.
    pub fn new(url: impl Into<String>, clock: Clock, random: Random) -> Self {
        Self {
            url: url.into(),
            root_certificates: None,
            clock,
            time: Time::Database,
            random,
            failpoints: Failpoints::none(),
            keyring: Keyring::default(),
            event_check: EventCheck::none(),
            operational_events: OperationalEvents::none(),
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
        // The URL contains a password.
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}
