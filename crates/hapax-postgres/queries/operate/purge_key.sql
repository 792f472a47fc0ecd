-- Deletes a key on an operator's word, unless its request is in progress or its row was written since
-- the operator looked ($4 to $6 are its epoch, its moment and the number of the transaction that wrote
-- it) or a saga that was started under it has not ended; and notes for every service that may have its
-- answer in memory that it is gone.
-- Only here: the other store has one process, and nobody beside it who operates.
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
