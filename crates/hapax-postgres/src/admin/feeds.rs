//! Feeds as operators see them, and the acceptance of a gap.
//!
//! These are functions of this store and not of [`hapax::admin`], because SQLite has no feeds.

use hapax::{
    Timestamp,
    admin::{Actor, AdminError},
    store::StoreError,
};
use serde_json::json;
use tokio_postgres::Row;

use super::audited::AuditedTransaction;
use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// The state of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedStatus {
    /// The name.
    pub name: String,
    /// The replication slot.
    pub slot: String,
    /// The server that the position is of.
    pub system_identifier: String,
    /// Its timeline.
    pub timeline: i64,
    /// Up to where the log was read; none after a gap was accepted, until the feed starts again.
    pub confirmed_lsn: Option<String>,
    /// Why nothing is read, if the feed stops at a gap.
    pub gap: Option<String>,
    /// When the gap was found.
    pub gap_at: Option<Timestamp>,
    /// When the position was recorded.
    pub updated_at: Timestamp,
    /// Number of changes that were set aside and still have a line in `hapax.set_aside`.
    pub set_aside: i64,
}

impl Postgres {
    /// The feeds that have ever started, by name; only the one of this name if there is one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn feeds(&self, name: Option<&str>) -> Result<Vec<FeedStatus>, StoreError> {
        let params: [&dyn Param; 1] = [&name];
        let rows = self.ask(query!("feed/list"), &params).await?;
        Ok(rows.iter().map(status).collect())
    }

    /// Accepts the gap at which a feed stops: it continues at the position of its slot. Changes
    /// before that position are not read. Returns what the gap was.
    ///
    /// # Errors
    /// Fails if there is no such feed, if it is not at a gap, and if the database fails.
    pub async fn accept_gap(
        &self,
        actor: &Actor,
        name: &str,
        reason: &str,
    ) -> Result<String, AdminError> {
        let object = format!("feed {name}");
        if self.feeds(Some(name)).await?.is_empty() {
            return Err(AdminError::not_found(object));
        }
        let mut act = AuditedTransaction::begin(self).await?;
        let accepted = act.ask(query!("feed/accept_gap"), &[&name]).await?;
        let gap: Option<String> = accepted.first().map(|row| row.get("gap"));
        let outcome = if gap.is_some() { "done" } else { "refused" };
        let detail = json!({"gap": gap, "reason": reason});
        act.note(actor, "accept_gap", &object, &detail, outcome)
            .await?;
        act.commit().await?;
        gap.ok_or_else(|| AdminError::conflict(format!("{object} is not at a gap")))
    }
}

fn status(row: &Row) -> FeedStatus {
    FeedStatus {
        name: row.get("name"),
        slot: row.get("slot"),
        system_identifier: row.get("system_identifier"),
        timeline: row.get("timeline"),
        confirmed_lsn: row.get("confirmed_lsn"),
        gap: row.get("gap"),
        gap_at: row.get::<_, Option<Moment>>("gap_at").map(|Moment(at)| at),
        updated_at: row.get::<_, Moment>("updated_at").0,
        set_aside: row.get("set_aside"),
    }
}
