//! The transaction of one operation, which ends with a line in the audit log.
//!
//! The operation and its line are committed together. An operation that returns an error is rolled
//! back; one that is refused returns the refusal as its value, so that its line is committed.

use std::{fmt, ops::Deref};

use hapax::admin::{Actor, AdminError, AuditEntry};
use rusqlite::{Params, params};
use serde_json::Value;

use super::view::{View, admin_error};
use crate::query;

/// The transaction of an operation. It has locked the database for writing, so everything that it
/// reads stays as it is until it ends.
pub(super) struct AuditedTransaction<'a> {
    pub(super) view: View<'a>,
}

impl AuditedTransaction<'_> {
    /// Runs a statement that returns no rows, and returns the number of rows that it changed.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, AdminError> {
        self.failpoints.hit("sqlite.admin.statement");
        let execute = || self.conn.prepare_cached(sql)?.execute(params);
        execute().map_err(admin_error)
    }

    /// Writes the operation's line to the audit log. The reason of the actor is added to `detail`.
    pub(super) fn note(
        &self,
        actor: &Actor,
        action: &str,
        object: &str,
        detail: &Value,
        outcome: &str,
    ) -> Result<(), AdminError> {
        let detail = AuditEntry::detail(actor, detail).to_string();
        let line = params![
            self.now.as_millis(),
            actor.name,
            actor.tenant(),
            action,
            object,
            detail,
            outcome
        ];
        self.execute(query!("admin/note"), line).map(drop)
    }
}

impl<'a> Deref for AuditedTransaction<'a> {
    type Target = View<'a>;

    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl fmt::Debug for AuditedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditedTransaction").finish_non_exhaustive()
    }
}
