-- Deletes some deliveries of a partition of a removed destination, at most ?2.
DELETE FROM hapax_delivery
WHERE destination = ?1
  AND position IN (
      SELECT position
      FROM hapax_delivery
      WHERE destination = ?1
      ORDER BY position
      LIMIT ?2
  )
