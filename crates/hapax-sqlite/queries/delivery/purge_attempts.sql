-- Deletes the attempts at a purged event.
-- Only here: the other store purges attempts with their events.
DELETE FROM hapax_attempt
WHERE position = ?1
