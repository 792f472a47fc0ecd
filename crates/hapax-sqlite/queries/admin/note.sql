-- Appends an operation to the audit log, in its transaction.
INSERT INTO hapax_audit_log (at, actor, tenant, action, object, detail, outcome)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
