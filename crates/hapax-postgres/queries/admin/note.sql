-- Appends an operation to the audit log, in its transaction.
INSERT INTO hapax.audit_log (actor, tenant, action, object, detail, outcome)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text)
