-- Lists, by type, the events that their receiver declined while it accepts others, for some
-- partitions ($1). It examines the $2 retries that are due next and the $2 oldest dead letters of
-- each partition, and keeps those whose last attempt was declined. For each type it returns the
-- first event, the reason and the number of events. For the range of one destination see partitions_now.
SELECT head.destination, event.type, min(head.position) AS position, count(*) AS number,
       (array_agg(last.error ORDER BY head.position DESC))[1] AS error,
       min(head.changed_at) AS since
FROM unnest($1::text[]) AS partition (name)
CROSS JOIN LATERAL (
    (
        SELECT destination, position, changed_at
        FROM hapax.delivery
        WHERE destination = partition.name AND state IN ('scheduled', 'retrying')
        ORDER BY next_at, position
        LIMIT $2::int8
    ) UNION ALL (
        SELECT destination, position, changed_at
        FROM hapax.delivery
        WHERE destination >= partition.name AND destination <= partition.name AND state = 'dead'
        ORDER BY destination, position
        LIMIT $2::int8
    )
) AS head
CROSS JOIN LATERAL (
    SELECT outcome, error
    FROM hapax.attempt
    WHERE position = head.position AND destination = head.destination
    ORDER BY number DESC
    LIMIT 1
) AS last
CROSS JOIN LATERAL (
    SELECT type
    FROM hapax.outbox_event
    WHERE id = head.position AND segment IN ((head.position >> 36 & 7)::int2, -1::int2)
    LIMIT 1
) AS event
WHERE last.outcome = 'declined'
GROUP BY head.destination, event.type
ORDER BY count(*) DESC, head.destination, event.type
LIMIT $3::int8
