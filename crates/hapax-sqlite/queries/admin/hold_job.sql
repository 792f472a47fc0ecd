-- Reads the job that has been due longest at ?1. A job that is due after ?2 was written while the
-- clock was ahead, and is due as well.
SELECT id, kind, destination, tenant, arguments, state, partition, position, total, done, per_second,
       failures, error, actor, created_at, started_at, ended_at
FROM hapax_job
WHERE state IN ('waiting', 'running') AND (next_at <= ?1 OR next_at > ?2)
ORDER BY next_at, id
LIMIT 1
