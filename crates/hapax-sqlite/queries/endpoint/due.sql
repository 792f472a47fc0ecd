-- Finds the deliveries of an enabled endpoint (?1) that are due at a time (?2), at most ?3, or one if the
-- endpoint is slowed. None is due while an endpoint pauses, and those of one that catches up are found by
-- endpoint/oldest.
-- Only here: the PostgreSQL store finds and claims deliveries in one statement.
SELECT delivery.id
FROM hapax_endpoint AS endpoint
JOIN hapax_endpoint_delivery AS delivery ON delivery.endpoint = endpoint.id
WHERE endpoint.id = ?1
  AND endpoint.deleted_at IS NULL
  AND endpoint.disabled_reason IS NULL
  AND endpoint.catch_up_at IS NULL
  AND coalesce(endpoint.slow_until <= ?2, true)
  AND delivery.state = 'waiting'
  AND delivery.next_at <= ?2
ORDER BY delivery.next_at, delivery.id
LIMIT coalesce((
    SELECT CASE WHEN slow_until IS NULL THEN ?3 ELSE min(?3, 1) END FROM hapax_endpoint WHERE id = ?1
), 0)
