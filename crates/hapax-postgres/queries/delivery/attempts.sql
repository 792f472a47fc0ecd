-- Reads every attempt at some deliveries, in order: a first one that arrived is a row of many, which
-- begins less than 8,192 positions before.
SELECT position, number, started_at, duration_ms, outcome, status, error, response_head
FROM (
    SELECT asked.position, 1 AS number, arrival.started_at, arrival.duration_ms,
           'delivered' AS outcome, arrival.status, NULL::text AS error, ''::bytea AS response_head,
           0::int8 AS id
    FROM unnest($1::int8[]) AS asked (position)
    CROSS JOIN LATERAL (
        SELECT arrival.started_at, arrival.duration_ms, arrival.status
        FROM hapax.arrival AS arrival
        WHERE arrival.first > asked.position - 8192
          AND arrival.first <= asked.position
          AND arrival.part = $2::text
          AND arrival.last >= asked.position
          AND hapax.positions(arrival.positions) @> asked.position
        ORDER BY arrival.first DESC, arrival.started_at
        LIMIT 1
    ) AS arrival
    UNION ALL
    SELECT position, number, started_at, duration_ms, outcome, status, error, response_head, id
    FROM hapax.attempt
    WHERE position = ANY ($1::int8[]) AND destination = $2::text
) AS tried
ORDER BY position, id
