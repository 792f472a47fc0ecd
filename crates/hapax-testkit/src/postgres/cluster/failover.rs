//! A server with failover slots, its standby, and the failure of its machine.
//!
//! Failover slots exist from PostgreSQL 17 on. Small builds of it have no `pg_basebackup`, so the
//! standby is made with the functions that the server has for backups. They must be called in one
//! session, and the label that the second one returns is part of the copy.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use super::{Cluster, one, quoted};
use crate::{
    postgres::programs::Programs,
    power::{Frozen, copy},
};

/// The first version with failover slots.
const VERSION: i32 = 170_000;
const INSTALL: &str = "failover slots need PostgreSQL 17 or later: run `cargo x packages` once, \
    which installs it, and name no earlier version in HAPAX_TEST_POSTGRES_BIN";

impl Cluster {
    /// Creates and starts a server that has failover slots, with settings that cannot be changed
    /// while it runs. Its programs are those that `HAPAX_TEST_POSTGRES_BIN` names, or those that
    /// `cargo x packages` has installed.
    ///
    /// `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`.
    ///
    /// # Panics
    /// Panics if the programs are missing or of an earlier version, or if the server does not start.
    pub async fn start_with_failover_slots(target_tmp: &str, settings: &[(&str, &str)]) -> Self {
        let named = std::env::var_os("HAPAX_TEST_POSTGRES_BIN").map(PathBuf::from);
        let link = Path::new(target_tmp).join("../postgresql-17");
        let directory = named.or_else(|| fs::canonicalize(link).ok());
        let directory = directory.filter(|it| it.join("postgres").is_file());
        let directory = directory.unwrap_or_else(|| panic!("{INSTALL}"));
        let mut cluster = Self::of(Programs::within(directory), &tempfile::env::temp_dir());
        cluster.make(settings).await;
        let version = "SELECT current_setting('server_version_num')::int4";
        let version: i32 = one(&cluster.client().await, version).await;
        assert!(version >= VERSION, "{INSTALL}");
        cluster
    }

    /// Creates a standby of this server that has copies of its failover slots. The standby receives
    /// the log through a new physical slot with this name, which is also its `application_name`.
    ///
    /// # Panics
    /// Panics if the copy cannot be made or does not start.
    pub async fn standby_with_failover_slots(&self, name: &str) -> Self {
        let client = self.client().await;
        let begin = format!(
            "SELECT pg_create_physical_replication_slot({}, true);
             SELECT pg_backup_start('standby', fast => true)",
            quoted(name)
        );
        let outcome = client.batch_execute(&begin).await;
        outcome.unwrap_or_else(|error| panic!("{begin}: {error}"));
        let mut standby = Self::of(self.programs.clone(), &tempfile::env::temp_dir());
        {
            // No file vanishes while it is copied.
            let _frozen = Frozen::family(self.postmaster()).await;
            copy(&self.data(), &standby.data());
        }
        let end = "SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)";
        let label: String = one(&client, end).await;
        standby.write("backup_label", &label);
        standby.write("standby.signal", "");
        let file = self.data().join("postgresql.auto.conf");
        let before = fs::read_to_string(file).expect("the configuration can be read");
        let configuration = before + &self.followed_by(name);
        standby.write("postgresql.auto.conf", &configuration);
        standby.leave_out();
        standby.launch().await;
        standby
    }

    /// Kills all processes of the server with SIGKILL at one moment, like a failure of its machine.
    ///
    /// # Panics
    /// Panics if the server does not run.
    pub async fn kill(&mut self) {
        let lock = fs::read_to_string(self.data().join("postmaster.pid"));
        let lock = lock.expect("a server that runs has a lock file");
        Frozen::family(self.postmaster()).await.kill();
        self.reap();
        // The system keeps the segment of shared memory of a killed server. Its id is the second
        // word of the seventh line. A segment that cannot be removed has 56 bytes.
        let segment = lock.lines().nth(6).unwrap_or_default();
        let segment = segment.split_whitespace().nth(1).unwrap_or_default();
        let _removed = Command::new("ipcrm").args(["-m", segment]).output();
    }

    fn postmaster(&self) -> u32 {
        let postmaster = self.postmaster.as_ref().map(Child::id);
        postmaster.expect("the server runs")
    }

    /// The settings of a standby of this server.
    fn followed_by(&self, name: &str) -> String {
        let port = self.port;
        let conninfo = format!(
            "host=127.0.0.1 port={port} user=postgres dbname=postgres application_name={name}"
        );
        let (conninfo, name) = (quoted(&conninfo), quoted(name));
        format!(
            "primary_conninfo = {conninfo}\nprimary_slot_name = {name}\n\
             hot_standby_feedback = on\nsync_replication_slots = on\n"
        )
    }

    /// Removes what belongs to the server from which the files were copied: its locks and its slots.
    fn leave_out(&self) {
        let data = self.data();
        for lock in ["postmaster.pid", "postmaster.opts"] {
            fs::remove_file(data.join(lock)).expect("a server that runs has this file");
        }
        let slots = fs::read_dir(data.join("pg_replslot"));
        for slot in slots.expect("a server has a folder of slots").flatten() {
            fs::remove_dir_all(slot.path()).expect("the files of a slot can be removed");
        }
    }

    fn write(&self, name: &str, content: &str) {
        let file = self.data().join(name);
        let written = fs::write(&file, content);
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        self.programs.own(&file);
    }
}
