-- Deletes the ended deliveries of a purged event.
-- Only here: the other store purges deliveries with their events.
DELETE FROM hapax_delivery
WHERE position = ?1 AND state IN ('delivered', 'discarded')
