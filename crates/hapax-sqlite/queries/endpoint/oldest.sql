-- Finds the delivery with the oldest event of an enabled endpoint (?1) that catches up, if that is due at a
-- time (?2) or was not tried since the endpoint was enabled.
-- Only here: the PostgreSQL store finds and claims deliveries in one statement.
SELECT delivery.id
FROM hapax_endpoint AS endpoint
JOIN hapax_endpoint_delivery AS delivery ON delivery.id = (
    SELECT head.id
    FROM hapax_endpoint_delivery AS head
    WHERE head.state = 'waiting' AND head.endpoint = ?1
    ORDER BY head.position, head.id
    LIMIT 1
)
WHERE endpoint.id = ?1
  AND endpoint.deleted_at IS NULL
  AND endpoint.disabled_reason IS NULL
  AND endpoint.catch_up_at IS NOT NULL
  AND coalesce(endpoint.slow_until <= ?2, true)
  AND (
      delivery.next_at <= ?2
      OR delivery.created_at < endpoint.catch_up_at
          AND coalesce(delivery.tried_at < endpoint.catch_up_at, true)
  )
