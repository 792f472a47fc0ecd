//! Checks of an SQLite file: the file itself, the process that has it open, its tables, its
//! integrity, and the room on its disk.
//!
//! The file is opened read-only, next to the service that uses it.

use std::{
    cmp::Ordering,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use hapax_sqlite::rusqlite::{self, Connection};

use super::Finding;
use crate::database::sqlite;

const MIB: u64 = 1024 * 1024;
/// Free bytes on the disk below which commits are about to fail.
const FREE_ERROR: u64 = 32 * MIB;
/// Free bytes on the disk below which to warn.
const FREE_WARN: u64 = 512 * MIB;
/// Size of the write-ahead log above which to warn. Without readers, the store keeps it to about a
/// quarter of this.
const LOG_WARN: u64 = 256 * MIB;
/// The most problems of `quick_check` that are reported.
const PROBLEMS: usize = 5;

pub(super) fn check(path: &Path) -> Vec<Finding> {
    let connection = match sqlite::look(path) {
        Ok(connection) => connection,
        Err(error) => {
            let remedy = "check the path in [database] url, and create the database with `hapax \
                          migrate`, or by starting the service that uses it";
            return vec![Finding::error("file", error.to_string(), remedy)];
        }
    };
    let mut findings = modes(path);
    findings.push(owner(path));
    findings.push(room(path));
    if let Err(error) = inside(&connection, path, &mut findings) {
        let found = format!("the database cannot be read: {error}");
        let remedy = "restore a backup of the file, or choose another one";
        findings.push(Finding::error("integrity", found, remedy));
    }
    findings
}

/// Files of the database that others than their owner may read. They contain responses and payloads.
fn modes(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in [
        path.to_owned(),
        beside(path, "-wal"),
        beside(path, "-shm"),
        beside(path, ".lock"),
    ] {
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        let (mode, shown) = (about.permissions().mode() & 0o777, path.display());
        if mode & 0o077 != 0 {
            let found = format!(
                "{shown} has mode {mode:03o}: others may read the responses and payloads in it"
            );
            let remedy = format!("chmod 600 {shown}");
            findings.push(Finding::warning("file", found, remedy));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("file", "only its owner may read the file"));
    }
    findings
}

/// Whether a process has the file open as a store, and runs a relay.
fn owner(path: &Path) -> Finding {
    let remedy = "start the service that uses it, or `hapax relay`";
    if !hapax_sqlite::is_held(path) {
        let found = "no process has the file open as its store: its events are not delivered";
        return Finding::note("lock", found, remedy);
    }
    if hapax_sqlite::has_relay(path) {
        return Finding::ok("lock", "a process has the file open and runs its relay");
    }
    let found = "a process has the file open as its store, and runs no relay: its events are not \
                 delivered";
    Finding::note("lock", found, "start the relay of the service")
}

/// The free space on the disk of the file.
fn room(path: &Path) -> Finding {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let free = match rustix::fs::statvfs(folder) {
        Ok(about) => about.f_bavail.saturating_mul(about.f_frsize),
        Err(error) => {
            let found = format!("the free space cannot be read: {error}");
            return Finding::note("disk", found, "");
        }
    };
    let size = fs::metadata(path).map_or(0, |about| about.len());
    let found = format!(
        "{} MiB are free, the database has {} MiB",
        free / MIB,
        size.div_ceil(MIB)
    );
    let remedy = "make room, or move the file to a larger disk while the service is stopped";
    match free {
        0..FREE_ERROR => Finding::error("disk", format!("{found}: commits fail soon"), remedy),
        FREE_ERROR..FREE_WARN => Finding::warning("disk", found, remedy),
        _ => Finding::ok("disk", found),
    }
}

/// Checks what the file contains.
fn inside(
    connection: &Connection,
    path: &Path,
    findings: &mut Vec<Finding>,
) -> rusqlite::Result<()> {
    findings.push(log(connection, path)?);
    findings.push(schema(connection)?);
    findings.extend(integrity(connection)?);
    Ok(())
}

/// The mode of the journal, and the size of the write-ahead log.
fn log(connection: &Connection, path: &Path) -> rusqlite::Result<Finding> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        let found = format!("journal_mode is {mode}: another program has changed it");
        let remedy = "start the service that uses the file again: it sets the mode when it opens \
                      the file";
        return Ok(Finding::error("wal", found, remedy));
    }
    let size = fs::metadata(beside(path, "-wal")).map_or(0, |about| about.len());
    Ok(if size > LOG_WARN {
        let found = format!("the write-ahead log has {} MiB", size / MIB);
        let remedy = "end the program that has been reading the file for long: the log cannot be \
                      merged meanwhile";
        Finding::warning("wal", found, remedy)
    } else {
        Finding::ok("wal", "on")
    })
}

fn schema(connection: &Connection) -> rusqlite::Result<Finding> {
    let (found, known) = (sqlite::version(connection)?, sqlite::known_version());
    Ok(match found.cmp(&known) {
        Ordering::Equal => {
            let found = format!("version {known}, the one that this program knows");
            Finding::ok("schema", found)
        }
        Ordering::Greater => {
            let found = format!("the tables are at version {found}, this program knows {known}");
            let remedy = "run the version of hapax that the service uses, or a later one";
            Finding::error("schema", found, remedy)
        }
        Ordering::Less => {
            let found = if found == 0 {
                "there are no tables of Hapax in this file".to_owned()
            } else {
                format!("the tables are at version {found}, this program needs {known}")
            };
            let remedy = "run `hapax migrate`, or start the service with this version of Hapax";
            Finding::error("schema", found, remedy)
        }
    })
}

/// Findings of `PRAGMA quick_check`.
fn integrity(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let mut statement = connection.prepare(&format!("PRAGMA quick_check({PROBLEMS})"))?;
    let problems = statement.query_map([], |row| row.get(0))?;
    let problems: Vec<String> = problems.collect::<Result<_, _>>()?;
    if problems == ["ok"] {
        return Ok(vec![Finding::ok("integrity", "quick_check finds nothing")]);
    }
    let remedy = "stop the service and restore a backup; `.recover` of sqlite3 saves what can be \
                  read";
    let finding = |problem| Finding::error("integrity", problem, remedy);
    Ok(problems.into_iter().map(finding).collect())
}

/// The path of a file beside the database, such as `shop.db-wal`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
