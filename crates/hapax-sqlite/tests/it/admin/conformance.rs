//! Runs the conformance suite of what operators see and do on the SQLite store.

use std::sync::Arc;

use hapax::{Clock, Random, admin::Admin, operational::OperationalEvents};
use hapax_sqlite::{SqliteAdmin, rusqlite::Connection};
use hapax_testkit::admin::{AdminUnderTest, Table};

use crate::conformance::Embedded;

impl<const ENCRYPTED: bool> AdminUnderTest for Embedded<ENCRYPTED> {
    const IS_ENCRYPTED: bool = ENCRYPTED;

    async fn emitting(clock: Clock, random: Random, events: OperationalEvents) -> Self {
        Self::opened(clock, random, events).await
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.admin().expect("the store has a handle"))
    }

    async fn beside(&self) -> Arc<dyn Admin> {
        let opened = SqliteAdmin::open(self.settings.clone());
        Arc::new(opened.expect("the database opens beside its store"))
    }

    async fn refuse_writes(&self, table: Table) {
        let table = name(table);
        let triggers = EVENTS.map(|event| {
            format!(
                "CREATE TRIGGER refuse_{event} BEFORE {event} ON {table}
                 BEGIN SELECT RAISE(ABORT, 'nothing is written here'); END;"
            )
        });
        self.run(&triggers.concat());
    }

    async fn accept_writes(&self, _table: Table) {
        let triggers = EVENTS.map(|event| format!("DROP TRIGGER refuse_{event};"));
        self.run(&triggers.concat());
    }
}

impl<const ENCRYPTED: bool> Embedded<ENCRYPTED> {
    /// Runs SQL on a separate connection.
    fn run(&self, sql: &str) {
        let conn = Connection::open(&self.settings.path).expect("the database opens");
        let ran = conn.execute_batch(&format!("BEGIN IMMEDIATE; {sql} COMMIT"));
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

const EVENTS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

fn name(table: Table) -> &'static str {
    match table {
        Table::Declarations => "hapax_declaration",
        Table::Deliveries => "hapax_delivery",
        Table::Jobs => "hapax_job",
        Table::AuditLog => "hapax_audit_log",
    }
}

hapax_testkit::admin_suite!(Embedded);

/// The same suite with encrypted responses, requests and payloads.
mod encrypted {
    type Encrypted = super::Embedded<true>;
    hapax_testkit::admin_suite!(Encrypted);
}
