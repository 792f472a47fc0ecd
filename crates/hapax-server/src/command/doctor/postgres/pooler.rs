//! Check: a pooler in transaction mode between this process and the database.
//!
//! It is detected if two connections, one of them idle and the other in a transaction, use the same
//! server process. A pooler with many idle server connections may not be detected.

use hapax_postgres::{Settings, tokio_postgres::Client};

use super::{Finding, QueryError, first_text};

/// Number of tries. Another client may use the server connection in between.
const TRIES: usize = 8;
const PROCESS: &str = "SELECT pg_backend_pid()";

pub(super) async fn check(client: &Client, settings: &Settings) -> Result<Finding, QueryError> {
    let Ok(other) = hapax_postgres::dial(settings).await else {
        let remedy = "raise max_connections or the pooler's limit";
        return Ok(Finding::warning(
            "pooler",
            "a second connection was refused",
            remedy,
        ));
    };
    let is_pooled = shares_process(client, &other).await?;
    Ok(match (is_pooled, settings.pooled) {
        (true, true) => Finding::ok(
            "pooler",
            "a pooler in transaction mode, as [database] pooled says",
        ),
        (true, false) => {
            let found = "connections go through a pooler in transaction mode";
            Finding::error("pooler", found, "set [database] pooled = true")
        }
        (false, true) => {
            let found = "[database] pooled is true, but no pooler was detected";
            let remedy = "if there is none, set it to false: statements are then prepared once";
            Finding::note("pooler", found, remedy)
        }
        (false, false) => Finding::ok("pooler", "no pooler in transaction mode was detected"),
    })
}

async fn shares_process(one: &Client, other: &Client) -> Result<bool, QueryError> {
    for _ in 0..TRIES {
        let free = first_text(one, PROCESS).await?;
        other.batch_execute("BEGIN").await?;
        let taken = first_text(other, PROCESS).await;
        other.batch_execute("ROLLBACK").await?;
        if free == taken? {
            return Ok(true);
        }
    }
    Ok(false)
}
