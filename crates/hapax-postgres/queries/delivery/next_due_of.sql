-- Finds when the next delivery of each of these partitions is due, as next_due does for one.
-- Only here: the SQLite store asks for one partition at a time, because it has no round trips.
SELECT asked.name, next.next_at
FROM unnest($1::text[]) AS asked (name)
CROSS JOIN LATERAL (
    SELECT delivery.next_at
    FROM hapax.delivery AS delivery
    WHERE delivery.destination = asked.name
      AND delivery.state IN ('scheduled', 'retrying')
      AND delivery.begun_at IS NULL
    ORDER BY delivery.next_at, delivery.position
    LIMIT 1
) AS next
