-- Visits the parked deliveries of a partition (?1) before a position (?2) or, at this position, before a
-- partition (?3), the newest event first. The caller stops when it has enough.
-- Only here: the PostgreSQL store visits all partitions in the statement that lists the deliveries.
SELECT position
FROM hapax_delivery INDEXED BY hapax_delivery_parked
WHERE destination = ?1
  AND position <= ?2
  AND (position < ?2 OR destination < ?3)
  AND state IN ('scheduled', 'retrying', 'blocked')
ORDER BY position DESC
