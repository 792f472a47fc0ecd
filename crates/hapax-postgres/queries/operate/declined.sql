-- Events that the far side takes others before, by type, at some parts ($1): of what is tried again
-- soonest and of the oldest dead letters so many ($2) of each, those whose last attempt was declined;
-- the first of each type, what it was declined for, and how many there are. Why a range of one
-- destination: see parts_now.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT head.destination, event.type, min(head.position), count(*),
       (array_agg(last.error ORDER BY head.position DESC))[1], min(head.changed_at)
FROM unnest($1::text[]) AS part (name)
CROSS JOIN LATERAL (
    (
        SELECT destination, position, changed_at
        FROM hapax.delivery
        WHERE destination = part.name AND state IN ('scheduled', 'retrying')
        ORDER BY next_at, position
        LIMIT $2::int8
    ) UNION ALL (
        SELECT destination, position, changed_at
        FROM hapax.delivery
        WHERE destination >= part.name AND destination <= part.name AND state = 'dead'
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
