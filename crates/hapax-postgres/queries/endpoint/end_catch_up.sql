-- Ends that an endpoint ($1) catches up, at another version ($2), unless something waits for it.
UPDATE hapax.endpoint AS endpoint
SET catch_up_at = NULL,
    version = $2::int8
WHERE endpoint.id = $1::text
  AND endpoint.catch_up_at IS NOT NULL
  AND endpoint.deleted_at IS NULL
  AND NOT EXISTS (
      SELECT 1
      FROM hapax.endpoint_delivery AS delivery
      WHERE delivery.state = 'waiting' AND delivery.endpoint = endpoint.id
  )
RETURNING id
