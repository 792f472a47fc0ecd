//! Why a table is not read: one sentence that names what is wrong, and who has to change it.

use hapax::store::StoreError;

/// Why a table that exists cannot be a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableSourceError {
    /// The description contradicts itself.
    #[error("source {source_name:?} is described wrongly: {problem}")]
    Description {
        /// Which source.
        source_name: String,
        /// What is wrong.
        problem: String,
    },
    /// The table does not exist, or is not a table.
    #[error("source {source_name:?}: there is no table {table}")]
    NoTable {
        /// Which source.
        source_name: String,
        /// The table, as SQL spells it.
        table: String,
    },
    /// The table has no such column.
    #[error("source {source_name:?}: table {table} has no column {column}, named as {role}")]
    NoColumn {
        /// Which source.
        source_name: String,
        /// The table, as SQL spells it.
        table: String,
        /// The column, as SQL spells it.
        column: String,
        /// The role of the column in the description.
        role: &'static str,
    },
    /// A column cannot be what it was said to be.
    #[error("source {source_name:?}: column {column} of table {table} cannot be {role}: {problem}")]
    Column {
        /// Which source.
        source_name: String,
        /// The table, as SQL spells it.
        table: String,
        /// The column, as SQL spells it.
        column: String,
        /// The role of the column in the description.
        role: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The role may not do what moving takes.
    #[error("source {source_name:?}: the role lacks a right: {grant}")]
    Grant {
        /// Which source.
        source_name: String,
        /// The statement that gives it.
        grant: String,
    },
    /// Row-level security hides every row from the role.
    #[error(
        "source {source_name:?}: row-level security of table {table} hides every row from the role: \
         give it BYPASSRLS, or policies by which it may select and update them (and delete them, \
         where rows are deleted)"
    )]
    RowSecurity {
        /// Which source.
        source_name: String,
        /// The table, as SQL spells it.
        table: String,
    },
    /// The database could not be asked.
    #[error("source {source_name:?} could not be looked at")]
    Store {
        /// Which source.
        source_name: String,
        /// The cause.
        source: StoreError,
    },
}
