-- Deletes deliveries that wait for an endpoint that was disabled more than $1 milliseconds ago, at most
-- $2.
WITH deleted AS (
    DELETE FROM hapax.endpoint_delivery
    WHERE id IN (
        SELECT delivery.id
        FROM hapax.endpoint AS endpoint
        JOIN hapax.endpoint_delivery AS delivery ON delivery.endpoint = endpoint.id
        WHERE delivery.state = 'waiting'
          AND endpoint.disabled_at
              < coalesce($3::timestamptz, clock_timestamp()) - $1::int8 * interval '1 millisecond'
        LIMIT $2::int8
        FOR UPDATE OF delivery SKIP LOCKED
    )
    RETURNING 1
)
SELECT count(*) AS deleted FROM deleted
