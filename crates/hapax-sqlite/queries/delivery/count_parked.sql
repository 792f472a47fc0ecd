-- Counts what waits outside the flow, and finds the first of it, by a partial index.
SELECT count(*), min(position)
FROM hapax_delivery INDEXED BY hapax_delivery_parked
WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
