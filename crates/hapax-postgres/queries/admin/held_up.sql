-- Lists the deliveries that block later ones of their order key at some partitions ($1). It
-- examines the $2 oldest dead letters and the $2 retries that are due next, keeps those that block
-- a delivery, and returns the number of blocked deliveries, counted up to $2. For the range of one
-- destination see partitions_now.
SELECT head.destination, head.position, head.state, head.attempt, head.next_at, head.order_key,
       head.last_error, head.changed_at, behind.number
FROM unnest($1::text[]) AS partition (name)
CROSS JOIN LATERAL (
    (
        SELECT destination, position, state, attempt, next_at, order_key, last_error, changed_at
        FROM hapax.delivery
        WHERE destination >= partition.name AND destination <= partition.name AND state = 'dead'
        ORDER BY destination, position
        LIMIT $2::int8
    ) UNION ALL (
        SELECT destination, position, state, attempt, next_at, order_key, last_error, changed_at
        FROM hapax.delivery
        WHERE destination = partition.name AND state IN ('scheduled', 'retrying')
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
