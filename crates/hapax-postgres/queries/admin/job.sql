-- Reads one job.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE id = $1::int8
  AND ($2::text IS NULL OR tenant = $2::text)
