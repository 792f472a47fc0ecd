-- Finds the parked deliveries with an attempt that was started and never settled.
-- Only here: the PostgreSQL store reads and interrupts them in one statement.
SELECT position, attempt, begun_at
FROM hapax_delivery INDEXED BY hapax_delivery_begun
WHERE destination = ?1 AND begun_at IS NOT NULL
