-- Deletes the rows of endpoints that were deleted more than $1 milliseconds ago, at most $2, once their
-- deliveries are deleted.
WITH deleted AS (
    DELETE FROM hapax.endpoint
    WHERE id IN (
        SELECT endpoint.id
        FROM hapax.endpoint AS endpoint
        WHERE endpoint.deleted_at
            < coalesce($3::timestamptz, clock_timestamp()) - $1::int8 * interval '1 millisecond'
          AND NOT EXISTS (
              SELECT 1
              FROM hapax.endpoint_delivery AS delivery
              WHERE delivery.endpoint = endpoint.id
          )
        ORDER BY endpoint.deleted_at
        LIMIT $2::int8
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT count(*) AS deleted FROM deleted
