-- Deletes a key at an operator's request, and records the purge for all services that may have its
-- response in memory. The key is not deleted if its request is in progress, if its row was written
-- since the operator read it ($4 to $6 are its epoch, its creation time and the number of the
-- transaction that wrote it), or if a saga that was started under it has not ended.
WITH gone AS (
    DELETE FROM hapax.idempotency_key
    WHERE tenant = $1::text AND operation = $2::text AND key = $3::text AND state <> 'in_progress'
      AND epoch = $4::int8 AND xmin::text::int8 = $6::int8
      AND (extract(epoch FROM created_at) / 0.000001)::int8 = $5::int8
      AND hapax.live_saga($1::text, $2::text, $3::text) IS NULL
    RETURNING tenant, operation, key
)
SELECT hapax.note_purge(tenant, operation, key, $7::int8)
FROM gone
