//! Runs the conformance suite of what operators see and do.

use std::{sync::Arc, time::Duration};

use hapax::{Clock, Random, admin::Admin, operational::OperationalEvents};
use hapax_postgres::Postgres;
use hapax_testkit::admin::{AdminUnderTest, Table};

use crate::conformance::Server;

/// A function that refuses a statement, for triggers.
const REFUSE: &str = "
    CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE 'nothing is written here'; END $$";

impl<const POOLED: bool, const ENCRYPTED: bool> AdminUnderTest for Server<POOLED, ENCRYPTED> {
    const IS_ENCRYPTED: bool = ENCRYPTED;

    async fn emitting(clock: Clock, random: Random, events: OperationalEvents) -> Self {
        Self::opened(clock, random, events).await
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.clone())
    }

    async fn beside(&self) -> Arc<dyn Admin> {
        let store = Postgres::open(self.settings.clone()).await;
        Arc::new(store.expect("the store opens once more"))
    }

    /// The database's clock decides when a job is due.
    async fn time_passed(&self, by: Duration) {
        let millis = by.as_millis();
        let passed =
            format!("UPDATE hapax.job SET next_at = next_at - interval '{millis} milliseconds'");
        self.run(&passed).await;
    }

    async fn refuse_writes(&self, table: Table) {
        let table = name(table);
        let refuse = format!(
            "{REFUSE}; CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON {table}
             EXECUTE FUNCTION public.refuse()"
        );
        self.run(&refuse).await;
    }

    async fn accept_writes(&self, table: Table) {
        let table = name(table);
        self.run(&format!("DROP TRIGGER refuse ON {table}")).await;
    }
}

impl<const POOLED: bool, const ENCRYPTED: bool> Server<POOLED, ENCRYPTED> {
    /// Runs SQL, past the store.
    async fn run(&self, sql: &str) {
        let client = self.reached.client().await;
        let ran = client.batch_execute(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

fn name(table: Table) -> &'static str {
    match table {
        Table::Declarations => "hapax.declaration",
        Table::Deliveries => "hapax.delivery",
        Table::Jobs => "hapax.job",
        Table::AuditLog => "hapax.audit_log",
    }
}

hapax_testkit::admin_suite!(Server);
