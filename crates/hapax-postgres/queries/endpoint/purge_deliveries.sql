-- Deletes deliveries that ended more than $1 milliseconds ago, at most $2.
WITH deleted AS (
    DELETE FROM hapax.endpoint_delivery
    WHERE id IN (
        SELECT id
        FROM hapax.endpoint_delivery
        WHERE state <> 'waiting'
          AND ended_at
              < coalesce($3::timestamptz, clock_timestamp()) - $1::int8 * interval '1 millisecond'
        ORDER BY ended_at
        LIMIT $2::int8
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT count(*) AS deleted FROM deleted
