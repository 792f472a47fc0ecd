-- Makes deliveries due that wait for a disabled endpoint ($1), before it is enabled: those with the oldest
-- events, at most $2. One that was claimed since it was disabled, or that is being settled, is left as it is.
UPDATE hapax.endpoint_delivery AS delivery
SET next_at = chosen.at
FROM (
    SELECT waits.id, now.at
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS at) AS now
    CROSS JOIN hapax.endpoint AS endpoint
    JOIN hapax.endpoint_delivery AS waits ON waits.endpoint = endpoint.id
    WHERE endpoint.id = $1::text
      AND endpoint.disabled_at IS NOT NULL
      AND endpoint.deleted_at IS NULL
      AND waits.state = 'waiting'
      AND waits.next_at > now.at
      AND coalesce(waits.tried_at < endpoint.disabled_at, true)
    ORDER BY waits.position, waits.id
    LIMIT $2::int8
    FOR UPDATE OF waits SKIP LOCKED
) AS chosen
WHERE delivery.id = chosen.id
