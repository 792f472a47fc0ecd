-- Ends that an endpoint (?1) catches up, at another version (?2), unless something waits for it.
UPDATE hapax_endpoint
SET catch_up_at = NULL,
    version = ?2
WHERE id = ?1
  AND catch_up_at IS NOT NULL
  AND deleted_at IS NULL
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_endpoint_delivery AS delivery
      WHERE delivery.state = 'waiting' AND delivery.endpoint = ?1
  )
RETURNING id
