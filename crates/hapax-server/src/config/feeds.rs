//! `[feeds.NAME]`: logical replication as a source of events. The settings are documented in
//! `hapax.default.toml`, their effect in `hapax_postgres::Feeder`.

use std::collections::BTreeMap;

use hapax_postgres::FeedTable;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{DatabaseLocation, Secret, Wrong};

/// Longest name of a replication slot in bytes.
const SLOT_MAX: usize = 63;
/// Longest prefix of messages in bytes.
const PREFIX_MAX: usize = 255;

/// A source of changes, and which of them become events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Feed {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    database: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publication: Option<String>,
    #[serde(default)]
    failover: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    messages: Option<String>,
    #[serde(default)]
    tables: BTreeMap<String, FeedTable>,
}

impl Feed {
    /// Finds the first setting that is not valid. The rest is checked against the database.
    pub(super) fn check(&self, name: &str, is_pooled: bool) -> Result<(), Wrong> {
        let wrong = |setting: &str, problem: &str| {
            Err(Wrong::at(format!("feeds.{name}.{setting}"), problem))
        };
        if self.tables.is_empty() && self.messages.is_none() {
            return wrong("tables", "is missing: describe a table, or set messages");
        }
        let slot = self.slot(name);
        let may = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if slot.is_empty() || slot.len() > SLOT_MAX || !slot.bytes().all(may) {
            return wrong("slot", "must be 1 to 63 of a-z, 0-9 and _");
        }
        let is_prefix = |prefix: &String| (1..=PREFIX_MAX).contains(&prefix.len());
        if self.messages.as_ref().is_some_and(|it| !is_prefix(it)) {
            return wrong(
                "messages",
                "must be the prefix of the messages, 1 to 255 bytes",
            );
        }
        match &self.database {
            None if is_pooled => {
                return wrong(
                    "database",
                    "is missing: a pooler does not forward replication, so a feed needs the URL of the \
                     server",
                );
            }
            // A URL in a file is read when it is needed.
            Some(Secret::Text(url)) => {
                server(url).map_err(|bad| Wrong::at(format!("feeds.{name}.database"), bad))?;
            }
            _ => {}
        }
        for (table, described) in &self.tables {
            check_table(&format!("feeds.{name}.tables.{table}"), described)?;
            // Every event would be a change that becomes an event.
            if self.database.is_none() && described.schema == "hapax" {
                return wrong(
                    &format!("tables.{table}.schema"),
                    "must not be the one to which the feed writes",
                );
            }
        }
        self.check_names(name)
    }

    /// Finds a table with two descriptions, of which one would be ignored.
    fn check_names(&self, name: &str) -> Result<(), Wrong> {
        let mut described = BTreeMap::new();
        for (section, table) in &self.tables {
            let of_table = if table.table.is_empty() {
                section
            } else {
                &table.table
            };
            if let Some(other) = described.insert((&table.schema, of_table), section) {
                let problem = format!(
                    "is also that of feeds.{name}.tables.{other}: a table has one description"
                );
                return Err(Wrong::at(
                    format!("feeds.{name}.tables.{section}.table"),
                    problem,
                ));
            }
        }
        Ok(())
    }

    /// Finds a feed that has the slot of another one, where both read the database of the relay.
    pub(super) fn check_slots(feeds: &BTreeMap<String, Self>) -> Result<(), Wrong> {
        let mut slots = BTreeMap::new();
        for (name, feed) in feeds.iter().filter(|(_, feed)| feed.database.is_none()) {
            if let Some(other) = slots.insert(feed.slot(name), name) {
                let problem =
                    format!("is also the slot of feeds.{other}: only one feed can read it");
                return Err(Wrong::at(format!("feeds.{name}.slot"), problem));
            }
        }
        Ok(())
    }

    /// The URL of the source, if it is not the database of the relay.
    pub(crate) fn url(&self) -> Result<Option<SecretString>, String> {
        let Some(url) = &self.database else {
            return Ok(None);
        };
        let url = url.reveal()?;
        server(&url)?;
        Ok(Some(url))
    }

    /// The replication slot.
    pub(crate) fn slot(&self, name: &str) -> String {
        self.slot
            .clone()
            .unwrap_or_else(|| format!("hapax_{name}").replace('-', "_"))
    }

    /// The feed in the form that the store expects.
    pub(crate) fn described(&self, name: &str) -> hapax_postgres::Feed {
        let slot = self.slot(name);
        let mut tables = self.tables.clone();
        for (name, table) in &mut tables {
            if table.table.is_empty() {
                table.table.clone_from(name);
            }
        }
        hapax_postgres::Feed {
            name: name.to_owned(),
            publication: self.publication.clone().unwrap_or_else(|| slot.clone()),
            slot,
            failover: self.failover,
            tables: tables.into_values().collect(),
            message_prefix: self.messages.clone(),
        }
    }
}

/// Finds the first setting of a table that is not valid.
fn check_table(path: &str, table: &FeedTable) -> Result<(), Wrong> {
    let types = [&table.kind, &table.kind_constant];
    let types = types.into_iter().flatten().count();
    // A table whose changes are ignored needs none.
    let problem = if types > 1 || types == 0 && !table.on.is_empty() {
        ("type", "is missing: set either type or type_constant")
    } else if table.payload.is_some() && !table.columns.is_empty() {
        ("columns", "cannot be combined with payload")
    } else if table.payload.is_none() && table.content_type.is_some() {
        ("content_type", "needs payload")
    } else if table.tenant.is_some() && table.tenant_constant.is_some() {
        ("tenant", "cannot be combined with tenant_constant")
    } else if table.aggregate_type.is_some() && table.aggregate_type_constant.is_some() {
        (
            "aggregate_type",
            "cannot be combined with aggregate_type_constant",
        )
    } else if table.aggregate_id.is_some()
        != (table.aggregate_type.is_some() || table.aggregate_type_constant.is_some())
    {
        ("aggregate_id", "and the aggregate's type need each other")
    } else {
        return Ok(());
    };
    Err(Wrong::at(format!("{path}.{}", problem.0), problem.1))
}

/// Requires the URL of a PostgreSQL server.
fn server(url: &SecretString) -> Result<(), String> {
    match DatabaseLocation::parse(url)? {
        DatabaseLocation::Server(_) => Ok(()),
        DatabaseLocation::File(_) => Err("must be a PostgreSQL URL".to_owned()),
    }
}
