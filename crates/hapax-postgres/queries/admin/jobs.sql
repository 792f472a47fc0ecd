-- Lists jobs, the newest first.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       next_at, failures, error, actor, request_key, created_at, started_at, ended_at
FROM hapax.job
WHERE id < $1::int8
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR destination = $3::text)
  AND ($4::text IS NULL OR state = $4::text)
ORDER BY id DESC
LIMIT $5::int8
