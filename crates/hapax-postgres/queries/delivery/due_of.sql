-- Returns those of these partitions ($1) that have a delivery which was due at a time ($2).
-- Deliveries with a running attempt do not count.
-- Only here: the SQLite store asks for one partition at a time, because it has no round trips.
SELECT asked.name
FROM unnest($1::text[]) AS asked (name)
CROSS JOIN LATERAL (
    SELECT delivery.position
    FROM hapax.delivery AS delivery
    WHERE delivery.destination = asked.name
      AND delivery.state IN ('scheduled', 'retrying')
      AND delivery.begun_at IS NULL
      AND delivery.next_at <= $2::timestamptz
    ORDER BY delivery.next_at, delivery.position
    LIMIT 1
) AS due
