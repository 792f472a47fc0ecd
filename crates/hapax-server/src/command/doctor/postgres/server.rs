//! Checks of the server: its version, and whether committed transactions are durable.

use hapax_postgres::tokio_postgres::Client;

use super::{Finding, QueryError, first_text, rows};

/// The oldest supported version. The store relies on its snapshots and functions.
const VERSION_MIN: u32 = 140_000;
/// Age in transactions at which to warn. The server stops at about two thousand million to prevent
/// a wraparound.
const WRAP_WARN: i64 = 1_500_000_000;

pub(super) async fn version(client: &Client) -> Result<Option<Finding>, QueryError> {
    let number = first_text(client, "SHOW server_version_num").await?;
    let shown = first_text(client, "SHOW server_version").await?;
    let found = format!("PostgreSQL {shown}");
    Ok(Some(match number.parse::<u32>() {
        Ok(number) if number < VERSION_MIN => {
            Finding::error("version", found, "upgrade to PostgreSQL 14 or later")
        }
        _ => Finding::ok("version", found),
    }))
}

pub(super) async fn is_standby(client: &Client) -> Result<bool, QueryError> {
    Ok(first_text(client, "SELECT pg_is_in_recovery()").await? == "t")
}

/// Settings that decide what is lost in a crash.
pub(super) async fn durability(client: &Client) -> Result<Vec<Finding>, QueryError> {
    let mut findings = Vec::new();
    for setting in ["fsync", "full_page_writes"] {
        findings.push(
            if first_text(client, &format!("SHOW {setting}")).await? == "off" {
                let found = format!(
                    "{setting} is off: a crash of the machine can lose or tear committed rows"
                );
                Finding::error(
                    setting,
                    found,
                    format!("set {setting} = on in postgresql.conf"),
                )
            } else {
                Finding::ok(setting, "on")
            },
        );
    }
    let commit = first_text(client, "SHOW synchronous_commit").await?;
    findings.push(if commit == "off" {
        let found = "synchronous_commit is off for this role: a crash loses the last commits, \
                     their events and what was settled";
        let remedy =
            "ALTER ROLE ... SET synchronous_commit = on, for the services that emit events too";
        Finding::warning("synchronous_commit", found, remedy)
    } else {
        Finding::ok("synchronous_commit", commit)
    });
    findings.push(if first_text(client, "SHOW autovacuum").await? == "off" {
        let remedy = "set autovacuum = on in postgresql.conf";
        Finding::warning(
            "autovacuum",
            "autovacuum is off: tables grow without end",
            remedy,
        )
    } else {
        Finding::ok("autovacuum", "on")
    });
    Ok(findings)
}

/// Resources that are about to run out.
pub(super) async fn room(
    client: &Client,
    settings: &hapax_postgres::Settings,
) -> Result<Vec<Finding>, QueryError> {
    const ROOM: &str = "SELECT current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        pg_notification_queue_usage(),
        (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())";
    let rows = rows(client, ROOM).await?;
    let number = |column| {
        rows.first()
            .and_then(|row| row.get(column)?.parse::<f64>().ok())
    };
    let mut findings = Vec::new();
    let (free, wanted) = (number(0).unwrap_or_default(), settings.connections);
    let found = format!("{free} connections are free, [database] connections is {wanted}");
    findings.push(
        if !settings.pooled && free < f64::from(u16::try_from(wanted).unwrap_or(u16::MAX)) {
            let remedy = "raise max_connections, or lower [database] connections, or use a pooler";
            Finding::warning("connections", found, remedy)
        } else {
            Finding::ok("connections", found)
        },
    );
    if number(1).is_some_and(|used| used > 0.5) {
        let found = "the queue of NOTIFY is more than half full: when it is full, commits fail";
        let remedy = "end the session that listens and does not read: the oldest in pg_stat_activity \
                      with a LISTEN and an open transaction";
        findings.push(Finding::warning("notify", found, remedy));
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "it is compared with a count of this size"
    )]
    if number(2).is_some_and(|age| age > WRAP_WARN as f64) {
        let found = "transaction ids are about to run out: the database then refuses all writes";
        let remedy = "end the sessions that keep old rows (see sessions), then run VACUUM";
        findings.push(Finding::error("wraparound", found, remedy));
    }
    Ok(findings)
}
