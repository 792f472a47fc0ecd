-- Counts what waits outside the flow, and finds the first of it, by a partial index.
-- Only here: the other store says how far behind a part is in one statement.
SELECT count(*), min(position)
FROM hapax_delivery INDEXED BY hapax_delivery_parked
WHERE destination = ?1 AND state IN ('scheduled', 'retrying', 'blocked')
