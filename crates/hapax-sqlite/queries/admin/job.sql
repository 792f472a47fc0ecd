-- Reads one job.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       failures, error, actor, created_at, started_at, ended_at
FROM hapax_job
WHERE id = ?1
  AND (?2 IS NULL OR tenant = ?2)
