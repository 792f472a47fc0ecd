-- Deletes the ended deliveries of a purged event.
DELETE FROM hapax_delivery
WHERE position = ?1 AND state IN ('delivered', 'discarded')
