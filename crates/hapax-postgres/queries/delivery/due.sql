-- Reads the due deliveries, the longest due first, and then the blocked deliveries of each key that
-- one of them blocks: up to $6 per key, and only up to the first that is not blocked. Reads up to
-- $4 rows, or the first that exceeds $5 bytes in total. The index contains scheduled and retrying
-- deliveries; blocked and dead ones are never due. If an operator has edited the payload or the
-- headers, these are read.
WITH due AS MATERIALIZED (
    SELECT position, state, attempt, next_at, order_key, payload, headers, manual
    FROM hapax.delivery
    WHERE destination = $1::text
      AND state IN ('scheduled', 'retrying')
      AND next_at <= $2::timestamptz
      AND position <> ALL ($3::int8[])
    ORDER BY next_at, position
    LIMIT $4::int8
), parked AS MATERIALIZED (
    SELECT position, state, attempt, next_at, order_key, payload, headers, manual, place
    FROM (
        SELECT position, state, attempt, next_at, order_key, payload, headers, manual, 0 AS place
        FROM due
        UNION ALL
        SELECT behind.position, behind.state, behind.attempt, due.next_at, due.order_key,
               behind.payload, behind.headers, behind.manual, behind.place
        FROM due
        CROSS JOIN LATERAL (
            SELECT position, state, attempt, payload, headers, manual,
                   row_number() OVER (ORDER BY position) AS place,
                   bool_and(state = 'blocked') OVER (ORDER BY position) AS waits
            FROM (
                SELECT position, state, attempt, payload, headers, manual
                FROM hapax.delivery AS unfinished
                WHERE unfinished.destination = $1::text
                  AND unfinished.order_key = due.order_key
                  AND unfinished.state IN ('retrying', 'blocked', 'dead')
                  AND unfinished.position > due.position
                ORDER BY position
                LIMIT $6::int8
            ) AS next
        ) AS behind
        WHERE due.state = 'retrying'
          AND behind.waits
          AND behind.position <> ALL ($3::int8[])
    ) AS found
    ORDER BY place, next_at, position
    LIMIT $4::int8
)
SELECT id, event_id::text, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
       created_at, available_at, state, attempt, next_at, order_key,
       coalesce(manual, false) AS manual
FROM (
    SELECT id, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers,
           created_at, available_at, state, attempt, next_at, order_key, manual, place,
           sum(bytes) OVER (ORDER BY place, next_at, id ROWS UNBOUNDED PRECEDING) - bytes AS before
    FROM (
        SELECT event.id, event.event_id, event.type, event.tenant, event.aggregate_type,
               event.aggregate_id, event.sequence,
               coalesce(parked.payload, event.payload) AS payload,
               coalesce(parked.headers, event.headers) AS headers, event.created_at,
               event.available_at, parked.state, parked.attempt, parked.next_at,
               parked.order_key, parked.manual, parked.place,
               octet_length(coalesce(parked.payload, event.payload))
                   + octet_length(coalesce(parked.headers, event.headers))
                   + octet_length(concat(event.type, event.tenant, event.aggregate_type,
                                         event.aggregate_id)) AS bytes
        FROM parked
        JOIN hapax.outbox_event AS event ON event.id = parked.position
            AND event.segment IN ((parked.position >> 36 & 7)::int2, -1::int2)
    ) AS sized
) AS event
WHERE before <= $5::int8
ORDER BY place, next_at, id
