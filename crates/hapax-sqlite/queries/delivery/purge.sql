-- Deletes the finished deliveries of a purged event.
-- Only here: the PostgreSQL store purges deliveries with their events.
DELETE FROM hapax_delivery
WHERE position = ?1 AND state IN ('delivered', 'discarded')
