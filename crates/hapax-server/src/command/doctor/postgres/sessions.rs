//! Checks of sessions: transactions that are open for long, and what keeps old rows.
//!
//! An old snapshot does not slow the relay down, but updated tables grow while it exists. Prepared
//! transactions that were forgotten hold their locks until they are ended.

use std::time::Duration;

use hapax_postgres::tokio_postgres::{Client, SimpleQueryRow};

use super::{Finding, QueryError, rows};

const IDLE: &str = "
    SELECT pid, coalesce(application_name, ''), extract(epoch FROM now() - state_change)::int8
      FROM pg_stat_activity
     WHERE datname = current_database() AND state LIKE 'idle in transaction%'
       AND state_change < now() - interval '{open_max}'
     ORDER BY state_change LIMIT 3";
const OLD: &str = "
    SELECT pid, coalesce(application_name, ''), extract(epoch FROM now() - xact_start)::int8
      FROM pg_stat_activity
     WHERE backend_xmin IS NOT NULL AND xact_start < now() - interval '1 hour'
       AND state NOT LIKE 'idle in transaction%' AND backend_type = 'client backend'
     ORDER BY xact_start LIMIT 3";
const PREPARED: &str = "
    SELECT quote_literal(gid), owner, extract(epoch FROM now() - prepared)::int8
      FROM pg_prepared_xacts
     WHERE database = current_database() AND prepared < now() - interval '{open_max}'
     ORDER BY prepared LIMIT 3";
const SLOTS: &str = "
    SELECT slot_name, coalesce(plugin, ''), age(coalesce(catalog_xmin, xmin))::int8
      FROM pg_replication_slots
     WHERE NOT active AND coalesce(catalog_xmin, xmin) IS NOT NULL
     LIMIT 3";
const BOUNDED: &str = "
    SELECT 1 FROM pg_settings
     WHERE name = 'idle_in_transaction_session_timeout' AND reset_val = '0'";

pub(super) async fn check(client: &Client, open_max: Duration) -> Result<Vec<Finding>, QueryError> {
    let open_max = format!("{} milliseconds", open_max.as_millis());
    let older = |sql: &str| sql.replace("{open_max}", &open_max);
    let mut findings = Vec::new();
    for row in rows(client, &older(IDLE)).await? {
        let [id, name, age] = columns(&row);
        let found = format!("session {id} ({name}) has been idle in a transaction for {age} s");
        let remedy = format!(
            "correct the program that leaves it open; SELECT pg_terminate_backend({id}) ends it, and \
             idle_in_transaction_session_timeout ends the next one"
        );
        findings.push(Finding::warning("sessions", found, remedy));
    }
    for row in rows(client, OLD).await? {
        let [id, name, age] = columns(&row);
        let found = format!("session {id} ({name}) has kept old rows from removal for {age} s");
        let remedy = format!("wait until it ends, or run SELECT pg_terminate_backend({id})");
        findings.push(Finding::warning("sessions", found, remedy));
    }
    for row in rows(client, &older(PREPARED)).await? {
        let [name, owner, age] = columns(&row);
        let found = format!(
            "transaction {name} of {owner} was prepared {age} s ago and has not ended: its events \
             are not committed"
        );
        let remedy = format!("COMMIT PREPARED {name}, or ROLLBACK PREPARED {name}");
        findings.push(Finding::warning("prepared", found, remedy));
    }
    for row in rows(client, SLOTS).await? {
        let [name, _, age] = columns(&row);
        let found =
            format!("replication slot {name} is not read and keeps rows of {age} transactions");
        let remedy = format!("start its reader, or SELECT pg_drop_replication_slot('{name}')");
        findings.push(Finding::warning("slots", found, remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("sessions", "no session is open for too long"));
    }
    if !rows(client, BOUNDED).await?.is_empty() {
        let found =
            "idle_in_transaction_session_timeout is 0: a writer that hangs holds its locks forever";
        let remedy = "ALTER DATABASE ... SET idle_in_transaction_session_timeout = '5min'";
        findings.push(Finding::note("sessions", found, remedy));
    }
    Ok(findings)
}

fn columns(row: &SimpleQueryRow) -> [&str; 3] {
    std::array::from_fn(|column| row.get(column).unwrap_or_default())
}
