//! The database settings: a local SQLite file, or a PostgreSQL server that instances can share.
//!
//! The URL of a server may hold a password, in several places. The password is never printed, in
//! whole or in part.

use std::{fmt, fs, path::PathBuf};

use hapax::keyring::{BadKey, Keyring};
use secrecy::{ExposeSecret as _, SecretString};

use super::{settings::Settings, values};

/// The database, and how to use it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) place: DatabaseLocation,
    /// The most requests that share one commit; the store's default if absent.
    pub(crate) group_max: Option<usize>,
    /// Whether a thread of the SQLite store merges the write-ahead log.
    pub(crate) merges_beside: bool,
    /// The most connections to a server; the store's default if absent.
    pub(crate) connections: Option<usize>,
    /// Whether connections go through a pooler in transaction mode.
    pub(crate) pooled: bool,
    /// Whether to create missing tables rather than refuse to start.
    pub(crate) makes_tables: bool,
    /// The keys that encrypt stored responses, requests and payloads.
    pub(crate) keyring: Keyring,
}

/// A database.
#[derive(Debug)]
pub(crate) enum DatabaseLocation {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL server, by its URL.
    Server(SecretString),
}

/// The largest allowed group, and the largest allowed connection pool.
const COUNT_MAX: usize = 10_000;

impl Storage {
    pub(super) fn read(settings: &Settings, file: PathBuf) -> Result<Self, String> {
        let place = settings.maybe("database", place)?;
        Ok(Self {
            place: place.unwrap_or(DatabaseLocation::File(file)),
            group_max: settings
                .maybe("store.group_max", |text| values::count(text, 1, COUNT_MAX))?,
            merges_beside: settings.one("store.merge_log", "beside", |text| {
                values::word(text, &[("beside", true), ("commit", false)])
            })?,
            connections: settings.maybe("store.connections", |text| {
                values::count(text, 2, COUNT_MAX)
            })?,
            pooled: settings.one("store.pooled", "false", values::switch)?,
            makes_tables: settings.one("store.schema", "apply", |text| {
                values::word(text, &[("apply", true), ("check", false)])
            })?,
            keyring: settings
                .maybe("store.encryption_keys", keyring)?
                .unwrap_or_default(),
        })
    }
}

/// Parses `sqlite://path` or `postgres://...`.
fn place(url: &str) -> Result<DatabaseLocation, String> {
    match url.split_once("://") {
        Some(("sqlite", path)) if !path.is_empty() => {
            Ok(DatabaseLocation::File(PathBuf::from(path)))
        }
        Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => {
            Ok(DatabaseLocation::Server(SecretString::from(url)))
        }
        _ => Err("must be a URL like sqlite://shop.db or postgres://user@host/database".to_owned()),
    }
}

/// Reads a file with one key per line; the first key encrypts.
fn keyring(path: &str) -> Result<Keyring, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))?;
    let text = SecretString::from(text);
    let keys: Vec<_> = text.expose_secret().lines().collect();
    if keys.is_empty() {
        return Err(format!("{path} contains no key"));
    }
    let bad = |bad: BadKey| format!("{path}: line {} {bad}", bad.place + 1);
    Keyring::parse(&keys).map_err(bad)
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(url) => write!(f, "postgres://{}", without_secrets(url.expose_secret())),
        }
    }
}

/// Returns the host and the database: the text after the last `@`, up to the parameters.
fn without_secrets(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    place.split_once('?').map_or(place, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_server_are_distinguished_by_their_scheme() {
        check("sqlite://a/b.db", "a/b.db");
        check("sqlite:///a/b.db", "/a/b.db");
        check("postgres://db/shop", "postgres://db/shop");
        check("postgresql://db:6432/shop", "postgres://db:6432/shop");
        for bad in ["sqlite://", "postgres://", "mysql://db", "shop.db", ""] {
            assert!(place(bad).unwrap_err().contains("postgres://"), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://shop:secret@db/shop",
            "postgres://shop:se@cret@db/shop",
            "postgres://shop:secret/@db/shop",
            "postgres://shop:secret?@db/shop",
            "postgres://db/shop?user=shop&password=secret",
            "postgres://shop:secret@db/shop?options=-c%20x=secret",
        ] {
            check(url, "postgres://db/shop");
            let place = place(url).unwrap();
            assert!(!format!("{place:?}").contains("secret"), "{place:?}");
        }
    }

    #[test]
    fn a_file_of_keys_has_one_on_each_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let path = path.to_str().unwrap();
        assert!(keyring(path).unwrap_err().contains("cannot be read"));
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        for (text, problem) in [
            (format!("{key}\nhunter2\n"), Some("line 2 is not 32 bytes")),
            (String::new(), Some("contains no key")),
            (format!("{key}\n{key}\n"), None),
        ] {
            fs::write(path, text).unwrap();
            let read = keyring(path).map(|_| ());
            match problem {
                Some(problem) => {
                    let error = read.unwrap_err();
                    assert!(error.contains(problem), "{error}");
                    assert!(!error.contains("hunter2"), "{error}");
                }
                None => read.unwrap(),
            }
        }
    }

    #[track_caller]
    fn check(url: &str, shown: &str) {
        assert_eq!(place(url).unwrap().to_string(), shown);
    }
}
