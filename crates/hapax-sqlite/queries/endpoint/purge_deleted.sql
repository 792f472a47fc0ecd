-- Deletes the rows of endpoints that were deleted before a time (?1), at most ?2, once their deliveries
-- are deleted.
DELETE FROM hapax_endpoint
WHERE id IN (
    SELECT endpoint.id
    FROM hapax_endpoint AS endpoint
    WHERE endpoint.deleted_at < ?1
      AND NOT EXISTS (
          SELECT 1
          FROM hapax_endpoint_delivery AS delivery
          WHERE delivery.endpoint = endpoint.id
      )
    ORDER BY endpoint.deleted_at
    LIMIT ?2
)
