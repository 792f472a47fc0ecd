-- Reads what decides which sagas of a state (?1) and a tenant (?4) are listed, like sagas. It reads
-- no sagas of other tenants: the page contains the id at which the visit ended, and an id is a
-- name that another tenant may have chosen.
-- Only here: the PostgreSQL store has both in a branch of one statement.
SELECT id, name, version
FROM hapax_saga INDEXED BY hapax_saga_tenant
WHERE state = ?1 AND id > ?2 AND tenant = ?4
ORDER BY id
LIMIT ?3
