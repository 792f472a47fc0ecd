-- Counts the events after a frontier, up to a bound that keeps the query fast.
SELECT count(*)
FROM (
    SELECT 1
    FROM hapax.outbox_event
    WHERE id > $1::int8 AND segment <> -1::int2
    ORDER BY id
    LIMIT $2::int8
) AS beyond
