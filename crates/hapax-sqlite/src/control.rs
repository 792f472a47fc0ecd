//! The statements that begin and end a group, with a text that no caller uses.
//!
//! SQLite checks what a statement may do when it is prepared, not when it runs. The connection
//! caches prepared statements by their text. A caller's `COMMIT` must therefore not have the same
//! text as the writer's, or it would run the cached statement unchecked.

pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE /* the writer's */";
pub(crate) const COMMIT: &str = "COMMIT /* the writer's */";
pub(crate) const ROLLBACK: &str = "ROLLBACK /* the writer's */";
pub(crate) const SAVEPOINT: &str = "SAVEPOINT hapax_member /* the writer's */";
pub(crate) const REWIND: &str = "ROLLBACK TO hapax_member /* the writer's */";
pub(crate) const RELEASE: &str = "RELEASE hapax_member /* the writer's */";
