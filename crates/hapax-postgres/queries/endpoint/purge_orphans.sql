-- Deletes deliveries of deleted endpoints, at most $1.
WITH deleted AS (
    DELETE FROM hapax.endpoint_delivery
    WHERE id IN (
        SELECT delivery.id
        FROM hapax.endpoint AS endpoint
        CROSS JOIN LATERAL (
            SELECT queued.id
            FROM hapax.endpoint_delivery AS queued
            WHERE queued.endpoint = endpoint.id
            LIMIT $1::int8
            FOR UPDATE SKIP LOCKED
        ) AS delivery
        WHERE endpoint.deleted_at IS NOT NULL
        LIMIT $1::int8
    )
    RETURNING 1
)
SELECT count(*) AS deleted FROM deleted
