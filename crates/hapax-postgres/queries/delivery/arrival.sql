-- Records first attempts that succeeded, one row for each run of positions. A settlement whose
-- commit result was lost is written again; its rows exist then.
INSERT INTO hapax.arrival AS known
    (partition, positions, first, last, started_at, duration_ms, status)
SELECT $1::text, positions, first, last, started_at, duration_ms, status
FROM unnest($2::text[], $3::int8[], $4::int8[], $5::timestamptz[], $6::int8[], $7::int2[])
     AS arrived (positions, first, last, started_at, duration_ms, status)
ON CONFLICT (first, partition, started_at) DO UPDATE SET
    positions = excluded.positions,
    last = excluded.last,
    duration_ms = excluded.duration_ms,
    status = excluded.status
WHERE known.last < excluded.last
