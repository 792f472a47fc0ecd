-- Makes deliveries due at a time (?3) that wait for a disabled endpoint (?1), before it is enabled: those with
-- the oldest events, at most ?2. One that was claimed since it was disabled is left as it is.
UPDATE hapax_endpoint_delivery
SET next_at = ?3
WHERE id IN (
    SELECT waits.id
    FROM hapax_endpoint AS endpoint
    JOIN hapax_endpoint_delivery AS waits ON waits.endpoint = endpoint.id
    WHERE endpoint.id = ?1
      AND endpoint.disabled_at IS NOT NULL
      AND endpoint.deleted_at IS NULL
      AND waits.state = 'waiting'
      AND waits.next_at > ?3
      AND coalesce(waits.tried_at < endpoint.disabled_at, true)
    ORDER BY waits.position, waits.id
    LIMIT ?2
)
