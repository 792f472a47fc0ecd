-- Reads the job that an actor requested with a key.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE actor = $1::text AND request_key = $2::text
