-- Counts what waits outside the flow, no further than a bound that keeps it quick, and finds when
-- the first event of it was written; both by a partial index.
SELECT (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM hapax.delivery
        WHERE destination = $1::text AND state IN ('scheduled', 'retrying', 'blocked')
        ORDER BY position
        LIMIT $2::int8
    ) AS parked
), (
    SELECT event.created_at
    FROM hapax.delivery AS delivery
    JOIN hapax.outbox_event AS event ON event.id = delivery.position
    WHERE delivery.destination = $1::text
      AND delivery.state IN ('scheduled', 'retrying', 'blocked')
    ORDER BY delivery.position
    LIMIT 1
)
