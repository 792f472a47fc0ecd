-- Deletes a key on an operator's word, finished or not, and notes for every service that may have its
-- answer in memory that it is gone.
WITH gone AS (
    DELETE FROM hapax.idempotency_key
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text
    RETURNING tenant, operation, key
)
SELECT hapax.note_purge(tenant, operation, key, $4::int8)
FROM gone
