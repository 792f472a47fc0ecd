-- Finds the parked deliveries whose attempt was begun and never settled.
-- Only here: the other store reads and interrupts in one statement.
SELECT position, attempt, begun_at
FROM hapax_delivery INDEXED BY hapax_delivery_begun
WHERE destination = ?1 AND begun_at IS NOT NULL
