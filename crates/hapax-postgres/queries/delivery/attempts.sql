-- Reads the attempts at some deliveries ($1 at $2, one for one), in order. A first attempt that
-- succeeded is partition of a row for many, which starts less than 8,192 positions before it.
SELECT position, number, started_at, duration_ms, outcome, status, error, response_head, partition
FROM (
    SELECT asked.position, asked.partition, 1 AS number, arrival.started_at, arrival.duration_ms,
           'delivered' AS outcome, arrival.status, NULL::text AS error, ''::bytea AS response_head,
           0::int8 AS id
    FROM unnest($1::int8[], $2::text[]) AS asked (position, partition)
    CROSS JOIN LATERAL (
        SELECT arrival.started_at, arrival.duration_ms, arrival.status
        FROM hapax.arrival AS arrival
        WHERE arrival.first > asked.position - 8192
          AND arrival.first <= asked.position
          AND arrival.partition = asked.partition
          AND arrival.last >= asked.position
          AND hapax.positions(arrival.positions) @> asked.position
        ORDER BY arrival.first DESC, arrival.started_at
        LIMIT 1
    ) AS arrival
    UNION ALL
    SELECT asked.position, asked.partition, number, started_at, duration_ms, outcome, status, error,
           response_head, id
    FROM unnest($1::int8[], $2::text[]) AS asked (position, partition)
    -- Each delivery is looked up separately by its index, regardless of the statistics.
    CROSS JOIN LATERAL (
        SELECT attempt.number, attempt.started_at, attempt.duration_ms, attempt.outcome, attempt.status,
               attempt.error, attempt.response_head, attempt.id
        FROM hapax.attempt AS attempt
        WHERE attempt.position = asked.position AND attempt.destination = asked.partition
        OFFSET 0
    ) AS attempt
) AS tried
ORDER BY position, partition, id
