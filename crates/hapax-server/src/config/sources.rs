//! `[sources.NAME]`: existing outbox tables of services. The settings are documented in
//! `hapax.default.toml`, their effect in `hapax_postgres::Imported`.

use hapax_postgres::TableSource;

use super::Wrong;

/// Maximum number of rows that one transaction moves.
const BATCH_MAX: usize = 10_000;

/// Finds the first setting that is not valid. The rest is checked against the database.
pub(super) fn check(name: &str, source: &TableSource) -> Result<(), Wrong> {
    let wrong =
        |setting: &str, problem: &str| Err(Wrong::at(format!("sources.{name}.{setting}"), problem));
    if !(1..=BATCH_MAX).contains(&source.batch) {
        return wrong("batch", "must be 1 to 10000");
    }
    if source.key.is_empty() {
        return wrong("key", "must name at least one column");
    }
    match (&source.published, source.delete) {
        (None, false) => wrong(
            "published",
            "is missing: name a column, or set delete = true",
        ),
        (Some(_), true) => wrong("published", "cannot be combined with delete = true"),
        _ if source.kind.is_some() == source.kind_constant.is_some() => {
            wrong("type", "is missing: set either type or type_constant")
        }
        _ => Ok(()),
    }
}
