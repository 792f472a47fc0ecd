//! PostgreSQL programs: their location and the user that runs them.
//!
//! They are searched in `HAPAX_TEST_POSTGRES_BIN` (for tests with another version), in Debian's
//! directories (the highest version first), on the `PATH`, and with `pg_config`. PostgreSQL refuses
//! to run as root; if the test runs as root, they run as the user `postgres`.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
};

use crate::guard::guard;

/// The programs that every server needs. A standby also needs `pg_basebackup`, and a restored
/// server `pg_dump` and `psql`, which small builds do not include.
const NEEDED: &[&str] = &["postgres", "initdb", "pg_ctl"];
const DEBIAN: &str = "/usr/lib/postgresql";
const INSTALL: &str = "no PostgreSQL programs (postgres, initdb, pg_ctl): install \
    the package postgresql, or name their directory in HAPAX_TEST_POSTGRES_BIN";

/// The programs of one version.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    directory: PathBuf,
    run_as: Option<User>,
}

/// The user that replaces root.
#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    group: u32,
}

impl Programs {
    /// Finds the programs, or returns what to install.
    pub(crate) fn find() -> Result<Self, &'static str> {
        let named = std::env::var_os("HAPAX_TEST_POSTGRES_BIN");
        let directory = match named {
            Some(named) => Some(PathBuf::from(named)).filter(|it| is_complete(it)),
            None => installed(),
        };
        directory.map(Self::within).ok_or(INSTALL)
    }

    /// The programs in this directory.
    pub(crate) fn within(directory: PathBuf) -> Self {
        let run_as = (number("-u", None) == 0).then(|| User {
            id: number("-u", Some("postgres")),
            group: number("-g", Some("postgres")),
        });
        Self { directory, run_as }
    }

    /// Their directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A command for one of them.
    pub(crate) fn command(&self, name: &str) -> Command {
        self.run_as_user(self.directory.join(name))
    }

    /// A command for a server that ends when this process closes its input or dies. Then the folder
    /// is removed, if there is one.
    pub(crate) fn server(&self, folder: Option<&Path>) -> Command {
        let mut command = self.run_as_user("sh");
        guard(
            &mut command,
            self.directory.join("postgres"),
            "QUIT",
            folder,
        );
        command
    }

    /// Makes the user of the programs the owner of a directory.
    pub(crate) fn own(&self, directory: &Path) {
        if let Some(User { id, group }) = self.run_as {
            let given = chown(directory, Some(id), Some(group));
            given.unwrap_or_else(|error| panic!("cannot chown {}: {error}", directory.display()));
        }
    }

    fn run_as_user(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(User { id, group }) = self.run_as else {
            return Command::new(program);
        };
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={id}"));
        command.arg(format!("--regid={group}"));
        command.args(["--clear-groups", "--"]).arg(program);
        command
    }
}

fn installed() -> Option<PathBuf> {
    let mut found = debian();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A symbolic link on the PATH leads to the directory of the other programs.
    let on_path = std::env::split_paths(&path)
        .filter_map(|directory| fs::canonicalize(directory.join("postgres")).ok());
    found.extend(on_path.filter_map(|program| program.parent().map(Path::to_owned)));
    let asked = Command::new("pg_config").arg("--bindir").output();
    found.extend(asked.map(|said| String::from_utf8_lossy(&said.stdout).trim().into()));
    found.into_iter().find(|it| is_complete(it))
}

/// Debian's directories, the highest version first.
fn debian() -> Vec<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

fn is_complete(directory: &Path) -> bool {
    NEEDED.iter().all(|name| directory.join(name).is_file())
}

/// A number printed by `id`: of a user or of a user's group.
fn number(of: &str, user: Option<&str>) -> u32 {
    let said = Command::new("id").arg(of).args(user).output();
    let said = said.unwrap_or_else(|error| panic!("cannot run id: {error}"));
    let text = String::from_utf8_lossy(&said.stdout);
    text.trim().parse().unwrap_or_else(|_| {
        panic!("root cannot run PostgreSQL and there is no user postgres: install postgresql")
    })
}
