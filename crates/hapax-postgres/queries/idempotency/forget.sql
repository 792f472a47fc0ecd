-- Deletes a key at an operator's request, finished or not, and records the purge for all services
-- that may have its response in memory.
WITH gone AS (
    DELETE FROM hapax.idempotency_key
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
    RETURNING tenant, operation, key
)
SELECT hapax.note_purge(tenant, operation, key, $4::int8)
FROM gone
