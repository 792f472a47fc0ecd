-- Deletes a batch of expired keys, and skips locked rows. A key whose claim asked for it becomes a
-- tombstone instead: it still counts as used, but its response is deleted. An unfinished key never
-- expires, and neither does a key while a saga that was started under it has not ended.
WITH judged AS (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS at
), expired AS MATERIALIZED (
    SELECT tenant, operation, key,
           on_expired = 'gone' AND state <> 'tombstone'
               AND expires_at + $3::int8 * interval '1 millisecond' > at AS leaves_tombstone
    FROM hapax.idempotency_key, judged
    WHERE expires_at <= at AND state <> 'in_progress'
      AND NOT EXISTS (
          SELECT FROM hapax.saga AS live
          WHERE live.key = idempotency_key.key
            AND live.key_operation = idempotency_key.operation
            AND live.key_tenant = idempotency_key.tenant AND live.ended_at IS NULL
      )
    ORDER BY expires_at
    LIMIT $2::int8
    FOR UPDATE OF idempotency_key SKIP LOCKED
), buried AS (
    UPDATE hapax.idempotency_key AS old SET
        state = 'tombstone',
        response_status = NULL,
        response_headers = NULL,
        response_body = NULL,
        resource_id = NULL,
        expires_at = old.expires_at + $3::int8 * interval '1 millisecond'
    FROM expired
    WHERE leaves_tombstone
      AND (old.key, old.operation, old.tenant) = (expired.key, expired.operation, expired.tenant)
    RETURNING old.operation
), deleted AS (
    DELETE FROM hapax.idempotency_key AS old
    USING expired
    WHERE NOT leaves_tombstone
      AND (old.key, old.operation, old.tenant) = (expired.key, expired.operation, expired.tenant)
    RETURNING old.operation
)
SELECT operation, count(*)
FROM (SELECT operation FROM buried UNION ALL SELECT operation FROM deleted) AS gone
GROUP BY operation
ORDER BY operation
