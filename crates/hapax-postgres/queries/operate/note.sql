-- Writes an act down, in its transaction.
-- Only here: the other store has one process, and nobody beside it who operates.
INSERT INTO hapax.audit_log (actor, tenant, action, object, detail, outcome)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text)
