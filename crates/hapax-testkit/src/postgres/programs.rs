//! PostgreSQL's own programs: where they are installed, and as whom they run.
//!
//! They are looked for in `HAPAX_TEST_POSTGRES_BIN` (which is how another version is tested),
//! where Debian installs them (the highest version), on the `PATH`, and where `pg_config` says.
//! PostgreSQL refuses to run as root; root runs them as the user `postgres`.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// What every server needs; a standby needs `pg_basebackup` as well, and a restored
/// one `pg_dump` and `psql`, which small builds leave out.
const NEEDED: &[&str] = &["postgres", "initdb", "pg_ctl"];
const DEBIAN: &str = "/usr/lib/postgresql";
const INSTALL: &str = "no PostgreSQL programs (postgres, initdb, pg_ctl): install \
    the package postgresql, or name their directory in HAPAX_TEST_POSTGRES_BIN";

/// The programs of one installed version.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    directory: PathBuf,
    run_as: Option<User>,
}

/// Whom root becomes.
#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    group: u32,
}

impl Programs {
    /// Finds them.
    pub(super) fn find() -> Self {
        #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
        let named = std::env::var("HAPAX_TEST_POSTGRES_BIN").ok();
        let directory = match named {
            Some(named) => Some(PathBuf::from(named)).filter(|it| is_complete(it)),
            None => installed(),
        };
        Self {
            directory: directory.unwrap_or_else(|| panic!("{INSTALL}")),
            run_as: (number("-u", None) == 0).then(|| User {
                id: number("-u", Some("postgres")),
                group: number("-g", Some("postgres")),
            }),
        }
    }

    /// Where they are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A call of one of them.
    pub(super) fn command(&self, name: &str) -> Command {
        self.run_as_user(self.directory.join(name))
    }

    /// A call of `name` in a shell that ends it at once when our side of its input closes: no
    /// server outlives its test, however the test ends.
    pub(super) fn guarded(&self, name: &str) -> Command {
        const GUARD: &str =
            "( { read -r _; kill -QUIT $$; } <&3 3<&- & ) 3<&0; exec \"$0\" \"$@\" </dev/null 3<&-";
        let mut command = self.run_as_user("sh");
        command.args(["-c", GUARD]).arg(self.directory.join(name));
        command.stdin(Stdio::piped());
        command
    }

    /// Gives a directory to whoever runs the programs.
    pub(super) fn own(&self, directory: &Path) {
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

/// Runs a program to its end.
///
/// # Panics
/// When it fails, with what it said.
pub(super) async fn succeed(command: Command) -> Output {
    let called = format!("{command:?}");
    let mut command = tokio::process::Command::from(command);
    let ended = command.stdin(Stdio::null()).output().await;
    let ended = ended.unwrap_or_else(|error| panic!("cannot run {called}: {error}"));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{called}: {}: {said}", ended.status);
    ended
}

fn installed() -> Option<PathBuf> {
    let mut found = debian();
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let path = std::env::var("PATH").unwrap_or_default();
    // A link on the PATH leads to where the others are.
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

/// A number that `id` prints: of a user, or of a user's group.
fn number(of: &str, user: Option<&str>) -> u32 {
    let said = Command::new("id").arg(of).args(user).output();
    let said = said.unwrap_or_else(|error| panic!("cannot run id: {error}"));
    let text = String::from_utf8_lossy(&said.stdout);
    text.trim().parse().unwrap_or_else(|_| {
        panic!("root cannot run PostgreSQL and there is no user postgres: install postgresql")
    })
}
