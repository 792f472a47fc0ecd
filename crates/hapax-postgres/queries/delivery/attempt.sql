-- Appends attempts to the log, in order. A settlement whose commit result was lost is written
-- again; its attempts exist then. Each of them is looked up separately: see release.
INSERT INTO hapax.attempt
    (destination, position, number, started_at, duration_ms, outcome, status, error,
     response_head)
SELECT $1::text, position, number, started_at, duration_ms, outcome, status, error, response_head
FROM unnest($2::int8[], $3::int4[], $4::timestamptz[], $5::int8[], $6::text[], $7::int2[],
            $8::text[], $9::bytea[])
     WITH ORDINALITY
     AS tried (position, number, started_at, duration_ms, outcome, status, error, response_head,
               place)
WHERE NOT EXISTS (
    SELECT 1
    FROM hapax.attempt AS known
    WHERE known.position = tried.position
      AND known.destination = $1::text
      AND known.number = tried.number
      AND known.started_at = tried.started_at
    OFFSET 0
)
ORDER BY place
