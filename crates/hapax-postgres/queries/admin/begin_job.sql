-- Inserts a job. If the same actor has already requested a job with the same key, none is inserted.
INSERT INTO hapax.job
    (kind, destination, tenant, arguments, state, position, total, per_second, next_at, actor,
     request_key, created_at)
VALUES ($1::text, $2::text, $3::text, $4::text, 'waiting', $5::int8, $6::int8, $7::int8::int4,
        clock_timestamp() + $8::int8 * interval '1 millisecond', $9::text, $10::text,
        clock_timestamp())
ON CONFLICT (actor, request_key) WHERE request_key IS NOT NULL DO NOTHING
RETURNING id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
          next_at, failures, error, actor, request_key, created_at, started_at, ended_at
