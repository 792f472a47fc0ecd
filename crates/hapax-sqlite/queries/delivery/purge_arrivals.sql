-- Deletes the arrivals of purged events. A row is deleted with the last event that it contains.
-- Only here: the PostgreSQL store purges arrivals with their segment.
DELETE FROM hapax_arrival
WHERE first > ?1 - 8192 AND first <= ?1 AND last <= ?1
