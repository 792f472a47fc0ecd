-- Deletes the attempts at a purged event.
-- Only here: the PostgreSQL store purges attempts with their events.
DELETE FROM hapax_attempt
WHERE position = ?1
