//! Check: the difference between the clocks of this machine and of the database.
//!
//! Only the clock of the database decides about leases and keys. The clock of this machine is used
//! for schedules and for the timestamps of webhooks.

use hapax_postgres::tokio_postgres::Client;

use super::{Finding, QueryError, first_text};
use crate::environment;

/// Milliseconds from which schedules are visibly wrong.
const WARN: i64 = 2_000;
/// Milliseconds at which receivers refuse webhooks as too old or too new: five minutes, less the
/// error of the receivers' clocks.
const ERROR: i64 = 240_000;

pub(super) async fn check(client: &Client) -> Result<Finding, QueryError> {
    let clock = environment::clock();
    // The first query includes the time in which a pooler opens a connection.
    first_text(client, "SELECT 1").await?;
    let before = clock.now().as_millis();
    let database = first_text(
        client,
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8",
    )
    .await?;
    let after = clock.now().as_millis();
    let database = database.parse::<i64>().unwrap_or(before);
    // The database read its clock at some moment between the two. Only what exceeds this interval
    // is a difference.
    let ahead = if database < before {
        before - database
    } else {
        (after - database).min(0)
    };
    Ok(evaluate(ahead))
}

fn evaluate(ahead_ms: i64) -> Finding {
    let off = ahead_ms.abs();
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let found = format!("this machine's clock is {off} ms {side} the database's");
    let remedy = "run an NTP client on both machines";
    match off {
        ERROR.. => Finding::error(
            "clock",
            format!("{found}: receivers refuse its webhooks"),
            remedy,
        ),
        WARN.. => Finding::warning(
            "clock",
            format!("{found}: schedules are off by as much"),
            remedy,
        ),
        0 => Finding::ok("clock", "this machine's clock agrees with the database's"),
        _ => Finding::ok("clock", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::doctor::Severity;

    #[test]
    fn a_clock_is_evaluated_by_what_it_breaks() {
        for (ahead, severity) in [
            (0, Severity::Ok),
            (-1_999, Severity::Ok),
            (2_000, Severity::Warning),
            (-3_600_000, Severity::Error),
        ] {
            assert_eq!(evaluate(ahead).severity, severity, "{ahead}");
        }
        assert!(evaluate(-5_000).found.contains("5000 ms behind"));
    }
}
