-- Counts the events after a frontier, up to a bound that keeps the query fast.
SELECT count(*)
FROM (SELECT 1 FROM hapax_outbox_event WHERE id > ?1 LIMIT ?2)
