-- Counts the events beyond a frontier, no further than a bound that keeps it quick.
SELECT count(*)
FROM (SELECT 1 FROM hapax_outbox_event WHERE id > ?1 LIMIT ?2)
