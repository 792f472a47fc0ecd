-- Deletes the arrivals of purged events: those of a row go with its last event.
-- Only here: the other store purges arrivals with their segment.
DELETE FROM hapax_arrival
WHERE first > ?1 - 8192 AND first <= ?1 AND last <= ?1
