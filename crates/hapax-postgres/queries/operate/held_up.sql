-- What holds up the later deliveries of its order key at some parts ($1): of the oldest dead letters and
-- of what is tried again soonest, so many ($2) of each, those behind which something is blocked; and
-- how many are, up to as many. Why a range of one destination: see parts_now.
-- Only here: the other store has one process, and nobody beside it who operates.
SELECT head.destination, head.position, head.state, head.attempt, head.next_at, head.order_key,
       head.last_error, head.changed_at, behind.number
FROM unnest($1::text[]) AS part (name)
CROSS JOIN LATERAL (
    (
        SELECT destination, position, state, attempt, next_at, order_key, last_error, changed_at
        FROM hapax.delivery
        WHERE destination >= part.name AND destination <= part.name AND state = 'dead'
        ORDER BY destination, position
        LIMIT $2::int8
    ) UNION ALL (
        SELECT destination, position, state, attempt, next_at, order_key, last_error, changed_at
        FROM hapax.delivery
        WHERE destination = part.name AND state IN ('scheduled', 'retrying')
        ORDER BY next_at, position
        LIMIT $2::int8
    )
) AS head
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'blocked') AS number
    FROM (
        SELECT state
        FROM hapax.delivery AS later
        WHERE later.destination = head.destination
          AND later.order_key = head.order_key
          AND later.position > head.position
          AND later.state IN ('retrying', 'blocked', 'dead')
        ORDER BY position
        LIMIT $2::int8
    ) AS unfinished
) AS behind
WHERE head.state <> 'scheduled' AND head.order_key IS NOT NULL AND behind.number > 0
ORDER BY behind.number DESC, head.destination, head.position
LIMIT $3::int8
