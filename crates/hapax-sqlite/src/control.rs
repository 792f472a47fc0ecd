//! What the writer says to begin and to end a group, in words that nobody else uses.
//!
//! SQLite asks what a statement may do when it is prepared, and not when it runs. The connection
//! keeps statements by their text: a caller who says `COMMIT` must not find the writer's own.

pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE /* the writer's */";
pub(crate) const COMMIT: &str = "COMMIT /* the writer's */";
pub(crate) const ROLLBACK: &str = "ROLLBACK /* the writer's */";
pub(crate) const SAVEPOINT: &str = "SAVEPOINT hapax_member /* the writer's */";
pub(crate) const REWIND: &str = "ROLLBACK TO hapax_member /* the writer's */";
pub(crate) const RELEASE: &str = "RELEASE hapax_member /* the writer's */";
