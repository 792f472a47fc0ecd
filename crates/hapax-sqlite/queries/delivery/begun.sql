-- Finds the parked deliveries whose attempt was begun and never settled.
SELECT position, attempt, begun_at
FROM hapax_delivery
WHERE destination = ?1 AND begun_at IS NOT NULL
